//! Whether a process may use AMX: the CPU must have it, the system must keep its registers, and Linux wants to be asked.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

/// Whether this process may use tiles of int8. The first call asks the system.
pub(in crate::kernels) fn permitted() -> bool {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    *PERMITTED.get_or_init(|| cpu_has_it() && system_keeps_it() && ask())
}

/// Leaf 7 of CPUID: AMX-TILE and AMX-INT8.
fn cpu_has_it() -> bool {
    if __cpuid(0).eax < 7 {
        return false;
    }
    let edx = __cpuid_count(7, 0).edx;
    edx >> 24 & 1 == 1 && edx >> 25 & 1 == 1
}

/// Whether the system saves the tiles and their configuration: bits 17 and 18 of XCR0.
fn system_keeps_it() -> bool {
    // OSXSAVE: whether XCR0 can be read.
    if __cpuid(1).ecx >> 27 & 1 == 0 {
        return false;
    }
    let low: u32;
    // SAFETY: the instruction is there, and reads register 0, which exists.
    unsafe {
        asm!(
            "xgetbv", in("ecx") 0, out("eax") low, out("edx") _,
            options(nomem, nostack, preserves_flags),
        );
    }
    low >> 17 & 3 == 3
}

/// Asks Linux for the tiles' registers, for all threads of the process.
#[cfg(target_os = "linux")]
fn ask() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    /// The state component that the tiles are.
    const XTILEDATA: i64 = 18;
    let result: i64;
    // SAFETY: the call changes nothing but what the system keeps for the process's threads. It overwrites rcx and r11.
    unsafe {
        asm!(
            "syscall", inout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") XTILEDATA,
            out("rcx") _, out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// Other systems aren't known to allow it.
#[cfg(not(target_os = "linux"))]
fn ask() -> bool {
    false
}
