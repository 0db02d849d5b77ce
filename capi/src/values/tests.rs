use vta_app::Tensor as OfDevice;
use vta_app::open::Port;

use super::*;

fn given<T: bytemuck::NoUninit>(kind: Element, values: &[T]) -> (Element, &[u8]) {
    (kind, bytemuck::cast_slice(values))
}

/// Fills room for values of a type.
fn read<T: bytemuck::Pod>(
    kind: Element,
    values: &mut [T],
    output: &Output,
    tensor: &Tensor,
) -> Result<(), Failure> {
    fill(bytemuck::cast_slice_mut(values), kind, output, tensor)
}

/// A tensor of two values; with a scale, devices have it.
fn tensor(element: Element, scale: Option<f32>) -> Tensor {
    Tensor::new(OfDevice {
        name: "x".to_owned(),
        chw: [2, 1, 1],
        shape: vec![2],
        element: scale.map_or(element, |_| Element::I8),
        scale,
        zero: if scale.is_some() { -3 } else { 0 },
        numbers: Numbers::Int8,
        port: Port {
            name: "x".to_owned(),
            element,
            shape: vec![1, 2],
        },
    })
}

#[test]
fn inputs_are_of_the_models_type_or_the_devices() {
    let steps = Some(0.5);
    for ((kind, bytes), element, scale, kept) in [
        (
            given::<f32>(Element::F32, &[0.5, -1.0]),
            Element::F32,
            steps,
            Values::Real(vec![0.5, -1.0].into()),
        ),
        (
            given::<i8>(Element::I8, &[5, -6]),
            Element::F32,
            steps,
            Values::Steps(vec![5, -6].into()),
        ),
        (
            given::<u8>(Element::U8, &[0, 255]),
            Element::U8,
            steps,
            Values::Steps(vec![-128, 127].into()),
        ),
        (
            given::<i8>(Element::I8, &[5, -6]),
            Element::U8,
            steps,
            Values::Steps(vec![5, -6].into()),
        ),
        (
            given::<u8>(Element::U8, &[0, 255]),
            Element::U8,
            None,
            Values::Whole(vec![0, 255].into()),
        ),
        (
            given::<i8>(Element::I8, &[1, -1]),
            Element::I8,
            None,
            Values::Whole(vec![1, -1].into()),
        ),
        (
            given::<i32>(Element::I32, &[1, i32::MIN]),
            Element::I32,
            None,
            Values::Whole(vec![1, i32::MIN.into()].into()),
        ),
        (
            given::<i64>(Element::I64, &[1, i64::MAX]),
            Element::I64,
            None,
            Values::Whole(vec![1, i64::MAX].into()),
        ),
        (
            given::<u8>(Element::Bool, &[0, 1]),
            Element::Bool,
            None,
            Values::Whole(vec![0, 1].into()),
        ),
    ] {
        assert_eq!(copied(kind, bytes, &tensor(element, scale)), Ok(kept));
    }
    for ((kind, bytes), element, scale, said) in [
        (
            given::<i64>(Element::I64, &[1, 2]),
            Element::F32,
            steps,
            "takes float32, or int8 as devices do, not int64",
        ),
        (
            given::<f32>(Element::F32, &[1.0, 2.0]),
            Element::I64,
            None,
            "takes int64, not float32",
        ),
        (
            given::<i8>(Element::I8, &[1, 2]),
            Element::F32,
            None,
            "takes float32, not int8",
        ),
        (
            given::<u8>(Element::U8, &[1, 2, 3]),
            Element::U8,
            None,
            "3 values; an image has 2",
        ),
        (
            given::<u8>(Element::U8, &[]),
            Element::U8,
            None,
            "0 values; an image has 2",
        ),
    ] {
        let found = copied(kind, bytes, &tensor(element, scale));
        let found = found.err().map(|e| e.text);
        assert!(
            found.as_ref().is_some_and(|text| text.ends_with(said)),
            "{found:?}"
        );
    }
}

/// An output of one image.
fn output(tensor: &Tensor, values: Values<'static>) -> Output {
    Output {
        tensor: tensor.of_device.clone(),
        images: 1,
        values,
    }
}

#[test]
fn outputs_are_of_the_models_type_or_the_devices() {
    let scaled = tensor(Element::U8, Some(0.5));
    let of_device = output(&scaled, Values::Steps(vec![-128, 5].into()));
    let (mut real, mut steps, mut bytes) = ([0f32; 2], [0i8; 2], [0u8; 2]);
    assert_eq!(read(Element::F32, &mut real, &of_device, &scaled), Ok(()));
    assert_eq!(read(Element::I8, &mut steps, &of_device, &scaled), Ok(()));
    assert_eq!(read(Element::U8, &mut bytes, &of_device, &scaled), Ok(()));
    assert_eq!((real, steps, bytes), ([-62.5, 4.0], [-128, 5], [0, 133]));

    let whole = tensor(Element::I32, None);
    let of_host = output(&whole, Values::Whole(vec![-7, 1 << 30].into()));
    let (mut short, mut long) = ([0i32; 2], [0i64; 2]);
    assert_eq!(read(Element::I32, &mut short, &of_host, &whole), Ok(()));
    assert_eq!(read(Element::I64, &mut long, &of_host, &whole), Ok(()));
    assert_eq!((short, long), ([-7, 1 << 30], [-7, 1 << 30]));

    let flags = tensor(Element::Bool, None);
    let of_host = output(&flags, Values::Whole(vec![1, 0].into()));
    assert_eq!(read(Element::Bool, &mut bytes, &of_host, &flags), Ok(()));
    assert_eq!(bytes, [1, 0]);
    for (found, said) in [
        (
            read(Element::F32, &mut real, &of_host, &flags),
            "gives bool or int64, not float32",
        ),
        (
            read(Element::U8, &mut bytes[..1], &of_host, &flags),
            "has 2 values of 1 images, not 1",
        ),
    ] {
        let found = found.err().map(|e| e.text);
        assert!(
            found.as_ref().is_some_and(|text| text.ends_with(said)),
            "{found:?}"
        );
    }
}
