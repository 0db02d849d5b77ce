//! Names the shared library by the version of its interface.

fn main() {
    // `VTA_ABI_VERSION` of src/api/open.rs, which a test compares.
    const ABI: u32 = 1;
    println!("cargo::rerun-if-changed=build.rs");
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    match &*os {
        "linux" | "android" | "freebsd" => {
            println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libvta.so.{ABI}");
        }
        "macos" => {
            let name = format!("@rpath/libvta.{ABI}.dylib");
            println!("cargo::rustc-cdylib-link-arg=-Wl,-install_name,{name}");
        }
        _ => {}
    }
}
