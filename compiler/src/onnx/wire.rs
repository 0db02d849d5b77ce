//! Protobuf as it lies in a file: fields one behind the other, those of unknown meaning too.

use bytes::{Buf, Bytes};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key};
use prost::encoding::{encode_varint, skip_field};

/// A field of a message.
pub(super) struct Field {
    pub tag: u32,
    /// All its bytes.
    pub whole: Bytes,
    /// What it holds, if it is a message, a text or bytes; else nothing.
    pub body: Bytes,
}

/// The fields of a message, in their order.
///
/// # Errors
/// Bytes that are no message.
pub(super) fn fields(message: &Bytes) -> Result<Vec<Field>, DecodeError> {
    let mut rest = message.clone();
    let mut found = Vec::new();
    while rest.has_remaining() {
        let start = rest.clone();
        let (tag, kind) = decode_key(&mut rest)?;
        let mut body = Bytes::new();
        if kind == WireType::LengthDelimited {
            let length = decode_varint(&mut rest.clone())?;
            skip_field(kind, tag, &mut rest, DecodeContext::default())?;
            // What was skipped is at least as long.
            let end = start.len() - rest.len();
            body = start.slice(end - length as usize..end);
        } else {
            skip_field(kind, tag, &mut rest, DecodeContext::default())?;
        }
        let whole = start.slice(..start.len() - rest.len());
        found.push(Field { tag, whole, body });
    }
    Ok(found)
}

/// Writes a field that is a message, a text or bytes.
pub(super) fn put(tag: u32, body: &[u8], out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(body.len() as u64, out);
    out.extend_from_slice(body);
}

/// A text among a message's fields; empty where it isn't there.
pub(super) fn text_in(message: &Bytes, tag: u32) -> String {
    let all = fields(message).unwrap_or_default();
    let name = all.iter().rfind(|field| field.tag == tag);
    name.map_or_else(String::new, |f| {
        String::from_utf8_lossy(&f.body).into_owned()
    })
}
