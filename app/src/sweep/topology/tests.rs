use super::*;

const CONVS: &str = "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, \
                         Strides,";

fn table(text: &str) -> Result<Vec<(String, Shape)>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    std::fs::write(&path, text).unwrap();
    let place = format!("{}/", folder.path().display());
    let found = Workload::read(&path).map_err(|e| e.to_string().replace(&place, ""))?;
    assert_eq!(found.name, "t.csv");
    Ok(found.layers.unwrap_or_default())
}

fn read(text: &str) -> Result<Vec<LayerSpec>, String> {
    let layer = |(name, shape): (String, Shape)| shape.layer(&name).map_err(|e| e.to_string());
    table(text)?.into_iter().map(layer).collect()
}

fn line(line: &str) -> Result<LayerSpec, String> {
    read(&format!("{CONVS}\n{line}\n")).map(|mut layers| layers.remove(0))
}

#[test]
fn convolutions_are_as_the_columns_say() {
    let text = format!(
        "\u{feff}{CONVS}\r\n\r\nConv1,224,230,7,5,3,64,2,\r\n FC , 1,1,1,1,512,1000,1,\r\n,,,,\r\n"
    );
    let layers = read(&text).unwrap();
    assert_eq!(layers.len(), 2);
    let (conv, dense) = (&layers[0], &layers[1]);
    assert_eq!((conv.name.as_str(), dense.name.as_str()), ("Conv1", "FC"));
    assert_eq!((conv.chw, conv.co, conv.group), ([3, 224, 230], 64, 1));
    assert_eq!((conv.window.kernel, conv.window.stride), ([7, 5], [2, 2]));
    assert_eq!((dense.chw, dense.co), ([512, 1, 1], 1000));
}

#[test]
fn outputs_are_as_many_as_scale_sim_counts() {
    for (h, w, k, l, s) in [
        (224, 230, 7, 5, 2),
        (227, 227, 11, 11, 4),
        (5, 9, 5, 2, 3),
        (6, 6, 1, 1, 4),
        (10, 10, 3, 2, 1),
    ] {
        let layer = line(&format!("c,{h},{w},{k},{l},1,1,{s},")).unwrap();
        let expected = |input: usize, filter: usize| (input - filter + s).div_ceil(s);
        let found = layer.window.output(h, w).unwrap();
        assert_eq!(
            found,
            [expected(h, k), expected(w, l)],
            "{h} {w} {k} {l} {s}"
        );
        assert_eq!((layer.window.pads.top, layer.window.pads.left), (0, 0));
    }
}

#[test]
fn a_name_with_dp_is_depthwise() {
    let layer = line("Conv2_DP,114,114,3,3,32,2,1,").unwrap();
    assert_eq!((layer.chw[0], layer.group, layer.co), (32, 32, 64));
    let layer = line("Conv2,114,113,3,2,32,2,1,").unwrap();
    assert_eq!((layer.group, layer.co), (1, 2));
}

#[test]
fn headings_may_have_other_spaces_tabs_and_remarks_behind_them() {
    let plain = table(&format!("{CONVS}\nc,6,7,1,2,3,4,1,\n")).unwrap();
    let wide = CONVS.replace(' ', "\u{a0} ");
    assert_eq!(
        table(&format!("{wide}\nc,6,7,1,2,3,4,1,\n")).unwrap(),
        plain
    );
    let tabs = CONVS.replace(',', "\t");
    assert_eq!(
        table(&format!("{tabs}\nc\t6\t7\t1\t2\t3\t4\t1\t\n")).unwrap(),
        plain
    );
    assert_eq!(
        table(&format!("{CONVS},Eh,Ew\nc,6,7,1,2,3,4,1,,6,6\n")).unwrap(),
        plain
    );
}

#[test]
fn products_are_of_the_columns_m_n_and_k() {
    let layers = read("Layer, M, N, K,\nq,197,768,64,\n").unwrap();
    assert_eq!(
        (layers[0].chw, layers[0].co, layers[0].dense),
        ([64, 1, 197], 768, true)
    );
    let layers = read("L,M,N,K,Sparsity\nq,1,2,3,1:1,\nr,1,2,3,\n").unwrap();
    assert_eq!((layers.len(), layers[1].chw), (2, [3, 1, 1]));
}

#[test]
fn equal_names_get_numbers() {
    let layers = read("Layer,M,N,K\na,1,1,1\na,2,1,1\na#2,3,1,1\na,4,1,1\n").unwrap();
    let names: Vec<&str> = layers.iter().map(|layer| &layer.name[..]).collect();
    assert_eq!(names, ["a", "a#2", "a#2#2", "a#3"]);
}

#[test]
fn what_is_no_table_names_the_line_and_what_is_expected() {
    for (text, error) in [
        ("", "t.csv: an empty file"),
        ("a,b\n", "t.csv:1: not a table of layers"),
        ("Layer,M,N\nq,1,2\n", "t.csv:1: not a table of layers"),
        ("Name,M,N,K,\nq,1,2,3,\n", "t.csv:1: not a table of layers"),
        ("Layer,M,K,N,\nq,1,2,3,\n", "t.csv:1: not a table of layers"),
        ("Layer,M,N,K,\nq,1,1,3,1:2,\n", "t.csv:2: Sparsity 1:2"),
        ("Layer,M,N,K,\n", "t.csv: there are no layers"),
        (
            "Layer,M,N,K,\n\nq,1,2\n",
            "t.csv:3: 3 cells: a layer has a name and 3 numbers",
        ),
        (
            "Layer,M,N,K,\nq,1,x,3,\n",
            "t.csv:2: 'x' is no whole number",
        ),
        (
            "Layer,M,N,K,\nq,1,-2,3,\n",
            "t.csv:2: '-2' is no whole number",
        ),
        (
            "Layer,M,N,K,\nq,1,0,3,\n",
            "t.csv:2: N: 0, not from 1 to 268435456",
        ),
        (
            "Layer,M,N,K,\nq,268435457,1,3,\n",
            "t.csv:2: M: 268435457, not from 1 to 268435456",
        ),
        (
            "Layer,M,N,K,\nq,65536,1,65536,\n",
            "'q': the input has more than 268435456 elements",
        ),
        (
            "Layer,M,N,K,Sparsity,\nq,1,1,3,2:4,\n",
            "t.csv:2: Sparsity 2:4",
        ),
        (
            "Layer,M,N,K,Batch Size,\nq,1,1,3,2,\n",
            "t.csv:2: Batch Size 2",
        ),
        (
            "Layer,M,N,K,\n,1,1,3,\n",
            "layer '': a name has 1 to 200 characters",
        ),
        ("Layer,M,N,K,\na\"b,1,1,3,\n", "layer 'a\\\"b': a name"),
    ] {
        let found = read(text).unwrap_err();
        assert!(found.contains(error), "{text:?}: {found}");
    }
    for (text, error) in [
        (
            "c,6,6,7,1,1,1,1,",
            "t.csv:2: a filter of 7x1 on an input of 6x6",
        ),
        (
            "c,6,6,1,1,1,1,0,",
            "t.csv:2: stride: 0, not from 1 to 268435456",
        ),
        ("c,6,6,1,1,1,1,", "t.csv:2: '' is no whole number"),
        (
            "AlphaGoZero,",
            "t.csv:2: 2 cells: a layer has a name and 7 numbers",
        ),
    ] {
        let found = line(text).unwrap_err();
        assert!(found.contains(error), "{text:?}: {found}");
    }
    let long = format!("Layer,M,N,K,\n{}", "q,1,1,1,\n".repeat(MAX_LAYERS + 1));
    assert!(
        read(&long)
            .unwrap_err()
            .starts_with("t.csv:10002: more than 10000 layers")
    );
}
