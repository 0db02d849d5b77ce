use super::*;

#[test]
fn scopes_are_read_and_printed() {
    let mut seen = 0;
    for scopes in Scopes::all() {
        assert_eq!(scopes.to_string().parse::<Scopes>().unwrap(), scopes);
        seen += 1;
    }
    assert_eq!(seen, 16);
    let one: Scopes = "activations=image2d".parse().unwrap();
    assert_eq!(
        (one.weights, one.activations),
        (Scope::Buffer, Scope::Image2d)
    );
}

#[test]
fn other_texts_are_refused_with_the_reason() {
    for (text, reason) in [
        ("", "'' has no ="),
        ("weights", "'weights' has no ="),
        (
            "weight=image",
            "'weight' is neither weights nor activations",
        ),
        ("weights=texture", "there is no scope 'texture'"),
        ("weights=Image", "there is no scope 'Image'"),
        ("weights=image,weights=image", "weights come twice"),
        ("weights=image,", "'' has no ="),
    ] {
        let error = text.parse::<Scopes>().unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
        assert!(
            error.contains("buffer, constant, image, image2d"),
            "{error}"
        );
    }
}

#[test]
fn buffers_build_the_kernels_that_others_do_not() {
    let mut all: Vec<String> = Scopes::all().map(Scopes::macros).collect();
    assert_eq!(all[0], "");
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 16);
}

#[test]
fn limits_are_the_scopes_and_are_named() {
    let images = ImageLimits {
        buffer_texels: 100,
        width: 2048,
        height: 3,
    };
    let mut device = DeviceFacts::nowhere();
    device.images = Some(images);
    device.constant_bytes = 1000;
    let limits = |text: &str, device: &DeviceFacts, least: u64| {
        let scopes: Scopes = text.parse().unwrap();
        scopes.limits(device, [1, least, u64::MAX])
    };
    let rows = 3 * 1024 * 16;
    for (scope, most) in [("constant", 1000), ("image", 1600), ("image2d", rows)] {
        let text = format!("weights={scope}");
        let found = limits(&text, &device, most).unwrap();
        assert_eq!(
            found,
            [device.max_alloc_bytes, most, device.max_alloc_bytes]
        );
        let error = limits(&text, &device, most + 1).unwrap_err();
        let says = format!("they take {} bytes, but CL_DEVICE_", most + 1);
        assert!(error.contains(&says) && error.contains(scope), "{error}");
    }
    let (mut without, mut narrow) = (device.clone(), device);
    without.images = None;
    narrow.images = Some(ImageLimits {
        width: 1023,
        ..images
    });
    assert!(limits("weights=constant", &without, 10).is_ok());
    for scope in ["image", "image2d"] {
        let error = limits(&format!("weights={scope}"), &without, 1).unwrap_err();
        assert!(error.contains("CL_DEVICE_IMAGE_SUPPORT"), "{error}");
    }
    assert!(limits("weights=image", &narrow, 1).is_ok());
    let error = limits("weights=image2d", &narrow, 1).unwrap_err();
    assert!(error.contains("CL_DEVICE_IMAGE2D_MAX_WIDTH"), "{error}");
}
