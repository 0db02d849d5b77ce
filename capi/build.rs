//! Names the shared library by the version of its interface.

fn main() {
    // `VTA_ABI_VERSION` of src/api/open.rs, which a test compares.
    const ABI: u32 = 1;
    println!("cargo::rerun-if-changed=build.rs");
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    match &*os {
        "linux" | "android" | "freebsd" => {
            println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libvta.so.{ABI}");
            beside(&format!("libvta.so.{ABI}"));
        }
        "macos" => {
            let name = format!("@rpath/libvta.{ABI}.dylib");
            println!("cargo::rustc-cdylib-link-arg=-Wl,-install_name,{name}");
        }
        _ => {}
    }
}

/// Gives the library that cargo makes its name for the loader, so that programs run with it where it lies. Without
/// that link `scripts/install-c` makes the same.
fn beside(name: &str) {
    let out = std::env::var_os("OUT_DIR").map(std::path::PathBuf::from);
    // OUT_DIR is PROFILE/build/PACKAGE/out.
    if let Some(profile) = out.as_deref().and_then(|out| out.ancestors().nth(3)) {
        #[cfg(unix)]
        let _ = std::os::unix::fs::symlink("libvta.so", profile.join(name));
    }
}
