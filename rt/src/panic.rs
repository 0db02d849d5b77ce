//! A static library must have a handler of panics, although nothing here panics.

use core::panic::PanicInfo;

#[panic_handler]
fn stop(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
