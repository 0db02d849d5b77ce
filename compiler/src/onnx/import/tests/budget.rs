//! What reading a file may compute: more is refused before it is computed.

use super::model::{Model, ints, text};

/// A model that multiplies its input by the largest of so many numbers, which so many nodes negate one behind the
/// other.
fn folded(numbers: i64, nodes: usize) -> Model {
    let mut model =
        Model::default()
            .longs("count", &[numbers])
            .node("ConstantOfShape", &["count"], "n0", &[]);
    for i in 0..nodes {
        model = model.node("Neg", &[&format!("n{i}")], &format!("n{}", i + 1), &[]);
    }
    let axes = [ints("axes", &[0])];
    model
        .node("ReduceMax", &[&format!("n{nodes}")], "most", &axes)
        .node("Mul", &["x", "most"], "y", &[])
}

#[test]
fn constants_that_are_folded_take_bounded_memory_and_work() {
    let error = folded(1 << 28, 1).read(13).unwrap_err().to_string();
    assert_eq!(
        error,
        "ONNX node ConstantOfShape n0 (ConstantOfShape): with it, reading the model takes 1073741824 bytes; the most for this file \
         is 671090592"
    );
    let error = folded(1 << 23, 400).read(13).unwrap_err().to_string();
    assert!(
        error.contains("(Neg): with it, reading the model computes more than 2684"),
        "{error}"
    );
}

#[test]
fn what_a_file_holds_may_be_folded() {
    let weights = vec![0.5; 17 << 20];
    let mut model = Model::default().floats("n0", &[17 << 20], weights);
    // More than the elements of a small file.
    for i in 0..10 {
        model = model.node("Neg", &[&format!("n{i}")], &format!("n{}", i + 1), &[]);
    }
    let model = model
        .node("ReduceMax", &["n10"], "most", &[ints("axes", &[0])])
        .node("Mul", &["x", "most"], "y", &[]);
    assert!(model.read(13).is_ok());
}

#[test]
fn gathered_slices_count_once() {
    // Were all of the table counted for each index, it would be 2^29 elements.
    let rows = 1 << 13;
    let gathers = |shape: &[i64]| {
        Model::default()
            .floats("table", &[rows, 8], vec![0.5; 8 * rows as usize])
            .longs("at", &vec![1; rows as usize])
            .longs("shape", shape)
            .node("Reshape", &["at", "shape"], "places", &[])
            .node("GatherND", &["table", "places"], "found", &[])
            .node("ReduceMax", &["found"], "most", &[ints("axes", &[0, 1])])
            .node("Mul", &["x", "most"], "y", &[])
            .read(13)
    };
    assert!(gathers(&[rows, 1]).is_ok());
    // An index of three dimensions is one too many for a table of two.
    let error = gathers(&[1, 1, rows]).unwrap_err().to_string();
    assert!(error.contains("(GatherND)"), "{error}");
}

#[test]
fn equal_blocks_are_asked_for_once() {
    // Each reads as much as 5,000 of the input's elements do: all together are more than the limit.
    let mut model =
        Model::default()
            .longs("many", &[1, 5000, 1, 1])
            .node("Tile", &["x", "many"], "t0", &[]);
    for i in 0..800 {
        let (from, to) = (format!("t{i}"), format!("t{}", i + 1));
        model = model.node("Einsum", &[&from], &to, &[text("equation", "abcd->abdc")]);
    }
    let last = [ints("axes", &[1, 2, 3])];
    let graph = model
        .node("ReduceMax", &["t800"], "y", &last)
        .read(13)
        .unwrap();
    assert_eq!(graph.nodes.len(), 802);
}

/// Orders of dimensions that begin with some of them.
fn orders(begun: &[i64], count: i64) -> Vec<Vec<i64>> {
    if begun.len() as i64 == count {
        return vec![begun.to_vec()];
    }
    let rest = (0..count).filter(|d| !begun.contains(d));
    rest.flat_map(|d| orders(&[begun, &[d]].concat(), count))
        .collect()
}

#[test]
fn what_sizes_say_is_not_computed() {
    // Each reads and writes 300,000 elements: all together are more than the limit.
    let mut model = Model::default()
        .longs("many", &[1, 5000, 1, 1])
        .longs("sizes", &[2, 5, 6, 10, 10, 50])
        .node("Tile", &["x", "many"], "tiled", &[])
        .node("Reshape", &["tiled", "sizes"], "t0", &[]);
    for (i, order) in orders(&[], 6).iter().enumerate() {
        let (from, to) = (format!("t{i}"), format!("t{}", i + 1));
        model = model.node("Transpose", &[&from], &to, &[ints("perm", order)]);
    }
    let last = [ints("axes", &[1, 2, 3, 4, 5])];
    let graph = model.node("ReduceMax", &["t720"], "y", &last).read(13);
    assert_eq!(graph.unwrap().nodes.len(), 723);
}

#[test]
fn normalisations_have_a_parameter_for_each_channel() {
    for count in [1i64, 3, 1 << 10] {
        let model = Model::default()
            .floats("p", &[count], vec![0.5; count as usize])
            .node("BatchNormalization", &["x", "p", "p", "p", "p"], "y", &[]);
        let error = model.read(13).unwrap_err().to_string();
        assert!(
            error.contains(&format!(
                "parameters of shape [{count}] for [1, 2, 5, 6], not [2]"
            )),
            "{error}"
        );
    }
}
