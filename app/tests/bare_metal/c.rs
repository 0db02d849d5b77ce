//! The runtime from C: the header, the static library, a program on a board in shared memory.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use memmap2::MmapMut;
use vta_app::images::first_largest;
use vta_driver::PhysAddr;
use vta_rt::{BatchStats, Fault, Image, Stats, Status, Visibility};

use crate::model::Accelerator;
use crate::{BUS, Sample, demo};

const REGISTERS: usize = 4096;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn ran(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// Builds a C program with all warnings as errors; where nothing is to be linked, an object.
fn compile(source: &Path, to: &Path, more: &[&Path]) {
    let strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pedantic"];
    let mut cc = Command::new("cc");
    cc.args(strict).arg("-I").arg(root().join("rt/include"));
    cc.arg(source).args(more).arg("-o").arg(to);
    ran(&mut cc);
}

/// The static library as a program of C gets it, built for this machine.
fn library() -> PathBuf {
    let target = root().join("target/rt-host");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(root())
        .args(["rustc", "--quiet", "--locked", "--offline"]);
    cargo.args([
        "-p",
        "vta-rt",
        "--profile",
        "rt",
        "--crate-type",
        "staticlib",
    ]);
    cargo
        .args(["--features", "panic-handler", "--target-dir"])
        .arg(&target);
    ran(&mut cargo);
    target.join("rt/libvta_rt.a")
}

/// Plays the accelerator in a mapped file until the child has ended.
fn play(memory: &mut MmapMut, sample: &Sample, mut child: std::process::Child) -> (Output, u64) {
    let mut accelerator = Accelerator::new(&sample.program.config);
    let window = (memory.len() - REGISTERS) as u64;
    accelerator.memory.map(BUS, window).unwrap();
    let registers = memory.as_mut_ptr().cast::<u32>();
    // SAFETY: the file is longer than its registers, which both sides read and write whole.
    let register = |index: usize| unsafe { registers.add(index).read_volatile() };
    let started = Instant::now();
    loop {
        if child.try_wait().unwrap().is_some() {
            return (child.wait_with_output().unwrap(), accelerator.cycles);
        }
        assert!(
            started.elapsed() < Duration::from_secs(100),
            "it never ends"
        );
        if register(0) != 1 {
            thread::sleep(Duration::from_micros(50));
            continue;
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let seen = accelerator.memory.write(BUS.into(), window).unwrap();
        seen.copy_from_slice(&memory[REGISTERS..]);
        let cycles = accelerator.run(PhysAddr(register(3)), register(2));
        let left = accelerator.memory.read(BUS.into(), window).unwrap();
        memory[REGISTERS..].copy_from_slice(left);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        // SAFETY: as above.
        unsafe {
            registers.add(1).write_volatile(cycles);
            registers.write_volatile(2);
        }
    }
}

#[test]
fn a_program_of_c_gives_the_demo_its_labels() {
    let (demo, folder) = (demo(), tempfile::tempdir().unwrap());
    let at = |name: &str| folder.path().join(name);
    compile(
        &root().join("rt/examples/classify.c"),
        &at("classify"),
        &[&library()],
    );
    let needs = Image::read(&demo.layers).unwrap().needs(Visibility::Copied);
    std::fs::write(at("image"), &demo.layers).unwrap();
    std::fs::write(
        at("memory"),
        vec![0; REGISTERS + needs.window_bytes as usize],
    )
    .unwrap();
    let values = demo.pictures.iter().flat_map(|(values, _, _)| values);
    let values: Vec<u8> = values.map(|&v| v as u8).collect();
    std::fs::write(at("values"), values).unwrap();
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(at("memory"))
        .unwrap();
    // SAFETY: the file is this test's; the other side changes it as hardware does.
    let mut memory = unsafe { MmapMut::map_mut(&file) }.unwrap();
    let child = Command::new(at("classify"))
        .args([at("image"), at("memory")])
        .arg(format!("{BUS:#x}"))
        .arg(at("values"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (output, cycles) = play(&mut memory, demo, child);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut expected = String::new();
    for (_, scores, label) in &demo.pictures {
        let scores: Vec<f32> = scores.iter().map(|&v| v.into()).collect();
        let class = first_largest(&scores);
        assert_eq!(Some(class), *label);
        writeln!(expected, "class {class}").unwrap();
    }
    assert!(text.starts_with(&expected), "{text}");
    assert!(
        text.contains(&format!("\n{} ", demo.program.layers[0].name)),
        "{text}"
    );
    let total = format!("total {cycles} cycles, {} runs\n", demo.pictures.len());
    assert!(text.ends_with(&total), "{text}");
}

#[test]
fn the_header_says_what_the_library_has() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = "#include <stddef.h>\n#include \"vta_rt.h\"\n".to_owned();
    let mut equal = |what: &str, value: usize| {
        writeln!(source, "_Static_assert({what} == {value}, \"{what}\");").unwrap();
    };
    for (name, size) in [
        ("vta_rt", size_of::<vta_rt::VtaRt>()),
        ("vta_rt_board", size_of::<vta_rt::VtaRtBoard>()),
        ("vta_rt_needs", size_of::<vta_rt::VtaRtNeeds>()),
        ("vta_rt_tensor", size_of::<vta_rt::VtaRtTensor>()),
        ("vta_rt_fault", size_of::<Fault>()),
        ("vta_rt_batch_stats", size_of::<BatchStats>()),
        ("vta_rt_stats", size_of::<Stats>()),
    ] {
        equal(&format!("sizeof({name})"), size);
    }
    macro_rules! fields {
        ($name:literal, $Type:ty: $($field:ident)+) => {
            $(equal(
                &format!("offsetof({}, {})", $name, stringify!($field)),
                offset_of!($Type, $field),
            );)+
        };
    }
    fields!("vta_rt_fault", Fault: status at value limit);
    fields!("vta_rt_batch_stats", BatchStats:
        runs cycles ticks loaded_bytes stored_bytes gemm_steps alu_steps macs insns layers);
    fields!("vta_rt_stats", Stats: runs batches cycles ticks loaded_bytes stored_bytes insns
        hung wrong_counters bus_errors busy);
    for (name, status) in [
        ("OK", Status::Ok),
        ("NULL", Status::Null),
        ("CLOSED", Status::Closed),
        ("BUSY", Status::Busy),
        ("IMAGE_CUT", Status::ImageCut),
        ("IMAGE_MAGIC", Status::ImageMagic),
        ("IMAGE_VERSION", Status::ImageVersion),
        ("IMAGE_CHECKSUM", Status::ImageChecksum),
        ("IMAGE_FORMAT", Status::ImageFormat),
        ("IMAGE_INSN", Status::ImageInsn),
        ("WINDOW", Status::Window),
        ("ALIGNMENT", Status::Alignment),
        ("ADDRESS", Status::Address),
        ("INDEX", Status::Index),
        ("LENGTH", Status::Length),
        ("HUNG", Status::Hung),
        ("COUNTER", Status::Counter),
        ("BUS", Status::Bus),
    ] {
        equal(&format!("VTA_RT_{name}"), status as usize);
    }
    source.push_str("int main(void) { return 0; }\n");
    let path = folder.path().join("header.c");
    std::fs::write(&path, source).unwrap();
    compile(&path, &folder.path().join("header"), &[]);
}

#[test]
fn misuse_from_c_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
#include <stddef.h>
#include "vta_rt.h"
static vta_rt rt;
static uint32_t registers[16];
static uint8_t window[64];
#define IS(call, status) if ((call) != (status)) return __LINE__
int main(void) {
    vta_rt_board board = { .registers = registers, .window = window, .window_bytes = 64,
                           .image_bus = VTA_RT_NOT_VISIBLE };
    vta_rt_needs needs;
    vta_rt_fault fault;
    IS(vta_rt_run(NULL), VTA_RT_NULL);
    IS(vta_rt_run(&rt), VTA_RT_CLOSED);
    IS(vta_rt_open(NULL, &board, "x", 1, NULL, 0), VTA_RT_NULL);
    IS(vta_rt_open(&rt, NULL, "x", 1, NULL, 0), VTA_RT_NULL);
    IS(vta_rt_open(&rt, &board, NULL, 1, NULL, 0), VTA_RT_NULL);
    IS(vta_rt_open(&rt, &board, "VTAF", 4, NULL, 0), VTA_RT_IMAGE_CUT);
    vta_rt_fault_of(&rt, &fault);
    IS(fault.value, 4);
    IS(fault.limit, 128);
    IS(vta_rt_needs_of("ELF", 3, &needs), VTA_RT_IMAGE_MAGIC);
    IS(vta_rt_needs_of("VTAF", 4, NULL), VTA_RT_NULL);
    IS(vta_rt_step(&rt, NULL), VTA_RT_CLOSED);
    IS(vta_rt_batch_name(&rt, 0) != NULL, 0);
    IS(vta_rt_text(99)[0], 'u');
    return 0;
}
"#;
    let path = folder.path().join("misuse.c");
    std::fs::write(&path, source).unwrap();
    compile(&path, &folder.path().join("misuse"), &[&library()]);
    let status = Command::new(folder.path().join("misuse")).status().unwrap();
    assert_eq!(status.code(), Some(0), "the line that failed, modulo 256");
}
