//! Protobuf's bytes, for ONNX files that no exporter writes.

/// A number as protobuf has it.
fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 127 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A field that is a number.
pub fn number(field: usize, value: usize) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// A field that has parts.
pub fn message(field: usize, parts: &[Vec<u8>]) -> Vec<u8> {
    let body = parts.concat();
    [varint(field << 3 | 2), varint(body.len()), body].concat()
}

/// A field that is text.
pub fn text(field: usize, text: &str) -> Vec<u8> {
    message(field, &[text.as_bytes().to_vec()])
}
