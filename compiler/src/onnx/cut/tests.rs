use proptest::prelude::*;

use super::*;
use crate::onnx::proto::{Attribute, Node, Tensor, ValueInfo};

fn value(name: &str) -> ValueInfo {
    let size = |size| proto::Dimension {
        dim_value: Some(size),
        dim_param: None,
    };
    let shape = proto::Shape {
        dim: vec![size(1), size(4)],
    };
    let tensor_type = proto::TensorType {
        elem_type: proto::FLOAT,
        shape: Some(shape),
    };
    ValueInfo {
        name: name.to_owned(),
        r#type: Some(proto::Type {
            tensor_type: Some(tensor_type),
        }),
    }
}

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> Node {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Node {
        op_type: op.to_owned(),
        input: names(inputs),
        output: names(outputs),
        ..Node::default()
    }
}

fn weights(name: &str) -> Tensor {
    Tensor {
        name: name.to_owned(),
        dims: vec![4],
        data_type: proto::FLOAT,
        raw_data: vec![1; 16].into(),
        ..Tensor::default()
    }
}

/// x and z: a = x + w, b = relu(a), [c, d] = halves of b, e = c + z, f = d * v.
fn model() -> proto::Model {
    let branch = Attribute {
        name: "then_branch".to_owned(),
        g: Some(proto::Graph {
            node: vec![node("Neg", &["inside"], &["g"])],
            output: vec![value("g")],
            ..proto::Graph::default()
        }),
        ..Attribute::default()
    };
    let mut chosen = node("If", &["f"], &["g.out"]);
    chosen.attribute.push(branch);
    let graph = proto::Graph {
        name: "g".to_owned(),
        node: vec![
            node("Add", &["x", "w"], &["a"]),
            node("Relu", &["a"], &["b"]),
            node("Split", &["b"], &["c", "d"]),
            node("Add", &["c", "z"], &["e"]),
            node("Mul", &["d", "v"], &["f"]),
            node("Abs", &["b"], &["inside"]),
            chosen,
        ],
        initializer: vec![weights("w"), weights("v")],
        // As old files have it, a constant is an input, too.
        input: vec![value("x"), value("z"), value("w")],
        output: vec![value("e"), value("f")],
        value_info: ["a", "b", "c"].map(value).into(),
    };
    proto::Model {
        ir_version: 3,
        graph: Some(graph),
        opset_import: vec![proto::OperatorSet {
            domain: String::new(),
            version: 11,
        }],
        metadata_props: ["vta.preprocess", "vta.labels", "author"]
            .map(|key| proto::StringEntry {
                key: key.to_owned(),
                value: "{}".to_owned(),
            })
            .into(),
        ..proto::Model::default()
    }
}

fn named(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn part(bytes: Vec<u8>, inputs: &[&str], outputs: &[&str]) -> Result<proto::Model, CutError> {
    let part = cut(
        bytes,
        &named(inputs),
        &named(outputs),
        &ReadOptions::default(),
    )?;
    let model = proto::Model::decode(&part.onnx[..]).unwrap();
    assert_eq!(
        part.nodes[0],
        model.graph.as_ref().map_or(0, |g| g.node.len())
    );
    Ok(model)
}

#[test]
fn a_part_has_what_its_outputs_need() {
    let whole = model();
    for (inputs, outputs, ops, takes, constants) in [
        (
            &[][..],
            &["b"][..],
            &["Add", "Relu"][..],
            &["w", "x"][..],
            &["w"][..],
        ),
        (&["b"], &["f"], &["Split", "Mul"], &["b"], &["v"]),
        (&["a"], &["b"], &["Relu"], &["a"], &[]),
        (&["z", "b"], &["e"], &["Split", "Add"], &["z", "b"], &[]),
        (&["z,b"], &["e"], &["Split", "Add"], &["z", "b"], &[]),
        (
            &[],
            &[],
            &["Add", "Relu", "Split", "Add", "Mul"],
            &["w", "x", "z"],
            &["w", "v"],
        ),
        // What only a branch reads.
        (
            &["b"],
            &["g.out"],
            &["Split", "Mul", "Abs", "If"],
            &["b"],
            &["v"],
        ),
    ] {
        let found = part(whole.encode_to_vec(), inputs, outputs).unwrap();
        let graph = found.graph.unwrap();
        let found_ops: Vec<_> = graph.node.iter().map(|n| &n.op_type[..]).collect();
        assert_eq!(found_ops, ops, "{inputs:?} to {outputs:?}");
        let found_inputs: Vec<_> = graph.input.iter().map(|i| &i.name[..]).collect();
        assert_eq!(found_inputs, takes, "{inputs:?} to {outputs:?}");
        let found_constants: Vec<_> = graph.initializer.iter().map(|t| &t.name[..]).collect();
        assert_eq!(found_constants, constants, "{inputs:?} to {outputs:?}");
        let kept: Vec<_> = found.metadata_props.iter().map(|e| &e.key[..]).collect();
        let own = |key: &&str| match *key {
            "vta.preprocess" => inputs.is_empty(),
            "vta.labels" => outputs.is_empty(),
            _ => true,
        };
        let expected = ["vta.preprocess", "vta.labels", "author"].into_iter();
        assert_eq!(kept, expected.filter(own).collect::<Vec<_>>());
    }
}

#[test]
fn what_cannot_be_cut_is_named() {
    let unknown = |name: &str| format!("the model has no value {name}");
    for (inputs, outputs, says) in [
        (&["y"][..], &["b"][..], unknown("y")),
        (&["x"], &["nothing"], unknown("nothing")),
        (&["w"], &["b"], "w is a constant".into()),
        (&["x"], &["w"], "w is a constant".into()),
        (&["a", "a"], &["b"], "a is named twice".into()),
        (&["b"], &["b"], "b is an input and an output".into()),
        (
            &[],
            &["x"],
            "x is an input of the model: no node makes it".into(),
        ),
        (
            &["b"],
            &["e"],
            "e depends on z, which is not among the inputs".into(),
        ),
        (
            &["b", "z"],
            &["f"],
            "z is an input that no output depends on".into(),
        ),
        (
            &["c", "b", "z"],
            &["e", "f"],
            "c is an input, and its node makes another value that the outputs depend on".into(),
        ),
    ] {
        let error = part(model().encode_to_vec(), inputs, outputs).err();
        let error = error.map(|error| error.to_string());
        assert_eq!(error, Some(says), "{inputs:?} to {outputs:?}");
    }
}

#[test]
fn what_is_not_read_keeps_its_bytes() {
    let mut bytes = model().encode_to_vec();
    // The graph's doc_string, then the model's domain and a field of no version.
    let mut graph = model().graph.unwrap().encode_to_vec();
    put(10, b"about", &mut graph);
    put(7, &graph, &mut bytes);
    let error = part(bytes, &[], &["b"]).err().unwrap();
    assert!(error.to_string().contains("or several"), "{error}");
    let mut bytes = proto::Model {
        graph: None,
        ..model()
    }
    .encode_to_vec();
    put(7, &graph, &mut bytes);
    put(4, b"domain", &mut bytes);
    put(4000, b"later", &mut bytes);
    let found = cut(bytes, &[], &named(&["b"]), &ReadOptions::default()).unwrap();
    let all = fields(&found.onnx.into()).unwrap();
    let body = |tag| all.iter().find(|f| f.tag == tag).unwrap().body.clone();
    assert_eq!(
        (&body(4)[..], &body(4000)[..]),
        (&b"domain"[..], &b"later"[..])
    );
    let graph = fields(&body(7)).unwrap();
    assert!(graph.iter().any(|f| f.tag == 10 && f.body == "about"));
}

proptest! {
    #[test]
    fn fields_are_all_of_a_message_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let bytes = Bytes::from(bytes);
        if let Ok(found) = fields(&bytes) {
            let whole: Vec<u8> = found.iter().flat_map(|field| field.whole.to_vec()).collect();
            prop_assert_eq!(whole, bytes.to_vec());
        }
        let _ = cut(bytes.to_vec(), &[], &[], &ReadOptions::default());
    }

    #[test]
    fn damaged_models_are_no_panic(at in 0usize..600, with in any::<u8>(), to in 0usize..600) {
        let mut bytes = model().encode_to_vec();
        let (at, to) = (at % bytes.len(), to % (bytes.len() + 1));
        bytes[at] = with;
        bytes.truncate(to.max(1));
        let _ = cut(bytes, &[], &named(&["b"]), &ReadOptions::default());
    }
}
