//! The driver against a model of the hardware in another process, which shares two files with it: registers and
//! memory. The model runs what it is given with the simulator, and has the faults that it is told to have.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::{layer, qgraph::QGraph, reference};
use vta_driver::{Batch, Device, PhysAddr, QueueLimits, Session, Work, WorkDone};
use vta_hw_board::{
    BoardDevice, BoardFile, Layout, MappedMemory, MappedRegisters, MemoryFile, RegisterFile,
};
use vta_isa::{Config, Insn};
use vta_sim::SimDevice;
use vta_sim::cycle::TimingConfig;

/// Where the memory begins as the accelerator sees it.
const BASE: u64 = 0x1000_0000;
const BYTES: u64 = 12 << 20;
/// Registers of the model alone: reset (which the model clears), what goes wrong with the next run, the end, whether it is there.
const RESET: u64 = 0x100;
const FAULT: u64 = 0x200;
const QUIT: u64 = 0x300;
const THERE: u64 = 0x304;
const MODEL: &str = "VTA_TEST_BOARD_MODEL";

/// What goes wrong.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Fault {
    /// The run never ends; a reset helps.
    Hang = 1,
    /// The counter says too much.
    CountsMore = 2,
    /// The counter says nothing.
    CountsNothing = 3,
    /// The bus answers with ones from now on, until the register of faults is written.
    BusError = 4,
    /// The run ends after two seconds.
    Late = 5,
    /// The run never ends, and no reset helps.
    Dead = 6,
}

fn registers(folder: &Path) -> RegisterFile {
    RegisterFile {
        path: folder.join("registers"),
        offset: 0,
        bytes: 4096,
        address_bits: Layout::Bits32,
    }
}

fn memory(folder: &Path) -> MemoryFile {
    MemoryFile {
        path: folder.join("memory"),
        offset: 0,
        address: Some(BASE),
        bytes: Some(BYTES),
        bus_offset: 0,
        attributes: None,
    }
}

/// The hardware, in a process of its own: this test, which does nothing where it isn't told to be that.
#[test]
fn the_model() {
    let Some(folder) = std::env::var_os(MODEL).map(PathBuf::from) else {
        return;
    };
    let mut registers = MappedRegisters::open(&registers(&folder)).unwrap();
    let mut memory = MappedMemory::open(&memory(&folder)).unwrap();
    let config = Config::default();
    let device = SimDevice::cycle(
        config,
        TimingConfig::pynq(),
        Default::default(),
        Default::default(),
    );
    device.alloc_at(PhysAddr(BASE as u32), BYTES).unwrap();
    let until = Instant::now() + Duration::from_secs(300);
    registers.write(THERE, 1);
    while registers.read(QUIT) == 0 && Instant::now() < until {
        if registers.read(Layout::CONTROL) == 1 {
            serve(&mut registers, &mut memory, &device);
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// A run.
fn serve(registers: &mut MappedRegisters, memory: &mut MappedMemory, device: &dyn Device) {
    let fault = registers.read(FAULT);
    registers.write(FAULT, 0);
    registers.write(RESET, 0);
    let is = |f: Fault| fault == f as u32;
    if is(Fault::Dead) {
        while registers.read(QUIT) == 0 {
            registers.write(Layout::CONTROL, 1);
        }
        return;
    }
    if is(Fault::Hang) {
        while registers.read(RESET) == 0 && registers.read(QUIT) == 0 {
            std::thread::sleep(Duration::from_micros(20));
        }
        return registers.write(Layout::CONTROL, 0);
    }
    if is(Fault::BusError) {
        registers.write(Layout::CONTROL, u32::MAX);
        while registers.read(RESET) == 0 && registers.read(QUIT) == 0 {
            std::thread::sleep(Duration::from_micros(20));
        }
        return registers.write(Layout::CONTROL, 0);
    }
    if is(Fault::Late) {
        std::thread::sleep(Duration::from_secs(2));
    }
    for base in Layout::bases() {
        let [(offset, _)] = Layout::Bits32.pointer(base, 0).collect::<Vec<_>>()[..] else {
            panic!("a pointer has one register");
        };
        assert_eq!(registers.read(offset), 0, "base {base}");
    }
    let (count, address) = (
        registers.read(Layout::COUNT),
        u64::from(registers.read(Layout::INSNS)),
    );
    let mut bytes = vec![0; BYTES as usize];
    memory.read(0, &mut bytes);
    let first = (address - BASE) as usize;
    let words: Vec<u128> = bytes[first..first + count as usize * 16]
        .chunks_exact(16)
        .map(|word| u128::from_le_bytes(word.try_into().unwrap()))
        .collect();
    let insns = words
        .iter()
        .map(|word| Insn::decode(*word).unwrap())
        .collect();
    let batch = Batch {
        words,
        insns,
        insn_addr: PhysAddr(address as u32),
        marks: Vec::new(),
    };
    let addr = PhysAddr(BASE as u32);
    let write = Work::Write {
        addr,
        data: bytes.into(),
    };
    device.submit(write).unwrap().wait().unwrap();
    let WorkDone::Ran(report) = device
        .submit(Work::Run(Arc::new(batch)))
        .unwrap()
        .wait()
        .unwrap()
    else {
        panic!("a run gives a report");
    };
    let read = Work::Read {
        addr,
        size_bytes: BYTES,
    };
    let WorkDone::Data(after) = device.submit(read).unwrap().wait().unwrap() else {
        panic!("a read gives bytes");
    };
    memory.write(0, &after);
    let cycles = match fault {
        f if f == Fault::CountsMore as u32 => 4_000_000_000,
        f if f == Fault::CountsNothing as u32 => 0,
        _ => report.cycles.unwrap() as u32,
    };
    registers.write(Layout::CYCLES, cycles);
    registers.write(Layout::CONTROL, 2);
}

/// A model that runs.
struct Board {
    folder: TempDir,
    child: Child,
}

impl Board {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("registers"), [0; 4096]).unwrap();
        std::fs::write(folder.path().join("memory"), vec![0xa5; BYTES as usize]).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_model", "--nocapture"])
            .env(MODEL, folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let board = Self { folder, child };
        let until = Instant::now() + Duration::from_secs(60);
        while board.registers().read(THERE) == 0 {
            assert!(Instant::now() < until, "the model doesn't start");
            std::thread::sleep(Duration::from_millis(1));
        }
        board
    }

    fn registers(&self) -> MappedRegisters {
        MappedRegisters::open(&registers(self.folder.path())).unwrap()
    }

    fn next(&self, fault: Fault) {
        self.registers().write(FAULT, fault as u32);
    }

    fn file(&self, deadline_ms: u64, more: &str) -> BoardFile {
        let folder = self.folder.path().display();
        let text = format!(
            "deadline_ms = {deadline_ms}\nclock_mhz = 2000.0\n{more}\n[registers]\npath = \"{folder}/registers\"\n\
             [memory]\npath = \"{folder}/memory\"\naddress = {BASE}\nbytes = {BYTES}\n"
        );
        BoardFile::from_toml("test", &text).unwrap()
    }

    fn device(&self, deadline_ms: u64, reset: bool) -> Arc<BoardDevice> {
        let reset = if reset {
            format!("reset = {{ offset = {RESET}, assert = 1, release = 1 }}")
        } else {
            String::new()
        };
        let file = self.file(deadline_ms, &reset);
        Arc::new(BoardDevice::from_file("test", &file, Config::default()).unwrap())
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.registers().write(QUIT, 1);
        let ended = self.child.wait().unwrap();
        if !std::thread::panicking() {
            assert!(ended.success(), "the model failed");
        }
    }
}

/// A layer with an image, and what comes out.
struct Network {
    graph: QGraph,
    image: Vec<i16>,
    expected: Vec<i16>,
}

impl Network {
    fn new() -> Self {
        let spec = layer::parse("conv:1,16,9,9,32,3,1,1").unwrap();
        let graph = layer::build(&spec, 3).unwrap();
        let image = layer::input(&spec, 3, 0);
        let mut values = reference::run(&graph, &image).unwrap();
        let expected = values.swap_remove(graph.outputs[0].0);
        Self {
            graph,
            image,
            expected,
        }
    }

    fn session(&self, device: Arc<BoardDevice>) -> Session {
        let program =
            lower::compile(&self.graph, &Config::default(), &LowerOptions::default()).unwrap();
        Session::new(Arc::new(program), device, QueueLimits::default()).unwrap()
    }

    /// The cycles of a run whose values are right, or why there is none.
    fn run(&self, session: &mut Session) -> Result<u64, String> {
        let found = session.run(&[&self.image]).map_err(|e| e.to_string())?;
        assert_eq!(found.outputs[0][0], self.expected);
        Ok(found.reports.iter().filter_map(|r| r.cycles).sum())
    }
}

#[test]
fn a_network_runs_as_on_the_simulator() {
    let (board, network) = (Board::start(), Network::new());
    let mut session = network.session(board.device(20_000, true));
    // The other end of the memory is the model's; a second device would write over this one's data.
    let twice = BoardDevice::from_file("again", &board.file(20_000, ""), Config::default());
    let error = twice.err().unwrap().to_string();
    assert!(
        error.ends_with("memory: the board is in use: another device has its memory"),
        "{error}"
    );
    let cycles: Vec<u64> = (0..3).map(|_| network.run(&mut session).unwrap()).collect();
    assert!(cycles[0] > 1000 && cycles[1] == cycles[2], "{cycles:?}");
    let program =
        lower::compile(&network.graph, &Config::default(), &LowerOptions::default()).unwrap();
    let simulator = SimDevice::cycle(
        Config::default(),
        TimingConfig::pynq(),
        Default::default(),
        Default::default(),
    );
    let mut simulated = Session::new(
        Arc::new(program),
        Arc::new(simulator),
        QueueLimits::default(),
    )
    .unwrap();
    for cycles in cycles {
        assert_eq!(network.run(&mut simulated).unwrap(), cycles);
    }
}

#[test]
fn every_fault_is_a_clear_error_and_the_device_goes_on() {
    let (board, network) = (Board::start(), Network::new());
    let mut session = network.session(board.device(1500, true));
    network.run(&mut session).unwrap();
    for (fault, told) in [
        (
            Fault::Hang,
            "didn't end in 1.500 s: the accelerator was reset",
        ),
        (
            Fault::CountsMore,
            "the cycle counter says 4000000000 after ",
        ),
        (Fault::CountsNothing, "the cycle counter says 0 after "),
        (
            Fault::BusError,
            "the registers answer 0xffffffff at 0x0: nothing is on the bus there",
        ),
    ] {
        board.next(fault);
        let error = network.run(&mut session).unwrap_err();
        assert!(
            error.starts_with("device board:test: ") && error.contains(told),
            "{error}"
        );
        if let Fault::BusError = fault {
            // As long as nothing answers, nothing is launched.
            assert!(network.run(&mut session).unwrap_err().contains(told));
            board.registers().write(RESET, 1);
            let until = Instant::now() + Duration::from_secs(20);
            while board.registers().read(Layout::CONTROL) != 0 && Instant::now() < until {}
        }
        network.run(&mut session).unwrap();
    }
    board.next(Fault::Dead);
    let error = network.run(&mut session).unwrap_err();
    assert!(error.ends_with("it is still busy after a reset"), "{error}");
    let error = network.run(&mut session).unwrap_err();
    assert!(
        error.contains("is still busy with a run that missed its deadline: reset the board"),
        "{error}"
    );
}

#[test]
fn a_run_that_ends_late_is_waited_out_where_nothing_resets() {
    let (board, network) = (Board::start(), Network::new());
    let mut session = network.session(board.device(500, false));
    network.run(&mut session).unwrap();
    board.next(Fault::Late);
    let error = network.run(&mut session).unwrap_err();
    assert!(
        error.contains("didn't end in 0.500 s: the board's file has no [reset]"),
        "{error}"
    );
    let error = network.run(&mut session).unwrap_err();
    assert!(
        error.contains("still busy with a run that missed its deadline"),
        "{error}"
    );
    let until = Instant::now() + Duration::from_secs(20);
    while board.registers().read(Layout::CONTROL) != 2 && Instant::now() < until {}
    network.run(&mut session).unwrap();
}

#[test]
fn what_would_stray_or_hang_is_not_launched() {
    let board = Board::start();
    let device = board.device(20_000, true);
    let run = |text: &str, insn_addr: PhysAddr| {
        let insns = vta_isa::asm::parse(text).unwrap();
        let batch = Batch {
            words: insns.iter().map(|insn| insn.encode().unwrap()).collect(),
            insns,
            insn_addr,
            marks: Vec::new(),
        };
        device
            .submit(Work::Run(Arc::new(batch)))
            .unwrap()
            .wait()
            .unwrap_err()
            .to_string()
    };
    let (words, data) = (device.alloc(4096).unwrap(), device.alloc(4096).unwrap());
    let tile = data.0 / 16;
    for (text, told) in [
        (
            format!(
                "store dram_base={} y_size=2 x_size=1 x_stride=256\nfinish",
                tile
            ),
            "instruction 0: ",
        ),
        (
            "store dram_base=1 y_size=1 x_size=1\nfinish".to_owned(),
            "instruction 0: 0x10..0x20 is not allocated",
        ),
        (
            "load.inp dram_base=0 y_size=1 x_size=1 pop_next\nfinish".to_owned(),
            "token",
        ),
        (
            "load.inp sram_base=2047 dram_base=0 y_size=1 x_size=2\nfinish".to_owned(),
            "2048",
        ),
    ] {
        let error = run(&text, words);
        assert!(error.contains(told), "{text}: {error}");
    }
    let error = run("finish", PhysAddr(words.0 + 2 * 4096));
    assert!(
        error.contains("leaves its allocation") || error.contains("is not allocated"),
        "{error}"
    );
    assert_eq!(
        board.registers().read(Layout::CONTROL),
        0,
        "something was launched"
    );
    // Copies are held to allocations, too, and allocations to the memory.
    let read = |addr, size_bytes| {
        device
            .submit(Work::Read { addr, size_bytes })
            .unwrap()
            .wait()
    };
    let WorkDone::Data(bytes) = read(data, 4096).unwrap() else {
        panic!("a read gives bytes");
    };
    assert!(bytes.iter().all(|byte| *byte == 0), "memory isn't clear");
    assert!(
        read(data, 4097)
            .unwrap_err()
            .to_string()
            .contains("leaves its allocation")
    );
    assert!(device.alloc(BYTES + 1).is_err() && device.alloc_at(PhysAddr(4096), 16).is_err());
    device.free(data).unwrap();
    assert!(read(data, 16).is_err());
}

#[test]
fn boards_that_are_none_are_named() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("registers"), [0xff; 4096]).unwrap();
    std::fs::write(path("memory"), [0; 8192]).unwrap();
    std::fs::create_dir(path("buffer")).unwrap();
    let text = format!(
        "[registers]\npath = \"{0}/registers\"\n[memory]\npath = \"{0}/memory\"\nattributes = \"{0}/buffer\"\n",
        folder.path().display()
    );
    std::fs::write(path("b.toml"), text).unwrap();
    let open = || {
        let opened = BoardDevice::open(&path("b.toml").display().to_string(), Config::default());
        opened.map(drop).map_err(|e| e.to_string())
    };
    let error = open().unwrap_err();
    assert!(
        error.contains("nothing is on the bus there, or the design isn't loaded"),
        "{error}"
    );
    std::fs::write(path("registers"), [0; 100]).unwrap();
    assert!(
        open()
            .unwrap_err()
            .contains("registers: can't be mapped: 100 bytes, but 4096 are needed")
    );
    std::fs::write(path("registers"), [0; 4096]).unwrap();
    assert!(open().unwrap_err().contains("phys_addr: can't be read"));
    for (address, size, told) in [
        ("x", "8192", "phys_addr: 'x' is no number"),
        (
            "0x10000800",
            "8192",
            "memory of 8192 bytes at 0x10000800: it must begin at a page",
        ),
        ("0xfffff000", "8192", "end within 32 bits"),
        ("0x10000000", "0", "memory of 0 bytes"),
        (
            "0x10000000",
            "16384",
            "memory: can't be mapped: 8192 bytes, but 16384 are needed",
        ),
    ] {
        std::fs::write(path("buffer/phys_addr"), address).unwrap();
        std::fs::write(path("buffer/size"), size).unwrap();
        let error = open().unwrap_err();
        assert!(error.contains(told), "{error}");
    }
    std::fs::write(path("buffer/size"), "8192\n").unwrap();
    open().unwrap();
}

#[test]
fn caches_are_kept_by_the_kernels_attributes() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("memory"), [0; 8192]).unwrap();
    std::fs::write(path("phys_addr"), "0x10000000\n").unwrap();
    std::fs::write(path("size"), "8192").unwrap();
    let file = MemoryFile {
        address: None,
        bytes: None,
        bus_offset: 0x8000_0000,
        attributes: Some(folder.path().to_owned()),
        ..memory(folder.path())
    };
    let attributes = ["offset", "size", "direction", "for_device", "for_cpu"];
    for name in attributes {
        std::fs::write(path(&format!("sync_{name}")), "").unwrap();
    }
    let mut found = MappedMemory::open(&file).unwrap();
    assert_eq!((found.address(), found.bytes()), (0x9000_0000, 8192));
    let read = |name: &str| std::fs::read_to_string(path(name)).ok();
    found.flush().unwrap();
    assert_eq!(
        (
            read("sync_for_device").as_deref(),
            read("sync_for_cpu").as_deref()
        ),
        (Some("1"), Some(""))
    );
    assert_eq!(
        (
            read("sync_size").as_deref(),
            read("sync_direction").as_deref()
        ),
        (Some("8192"), Some("0"))
    );
    found.invalidate().unwrap();
    assert_eq!(read("sync_for_cpu").as_deref(), Some("1"));
    drop(folder);
    assert!(
        found
            .flush()
            .unwrap_err()
            .to_string()
            .contains("sync_offset: can't be written")
    );
}
