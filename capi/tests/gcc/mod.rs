//! Compiles programs of C and C++ and links them with the libraries that cargo made beside this test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// The folder of the crate.
pub fn capi() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Which library a program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    Dynamic,
    Static,
}

/// What the static library needs of the system.
const NATIVE: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

/// Warnings are errors.
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// A program that is compiled and linked, in a folder of its own.
pub struct Program {
    folder: TempDir,
    file: PathBuf,
}

impl Program {
    /// Compiles a source of C or C++.
    pub fn new(source: &Path, linked: Linked) -> Self {
        Self::with(source, linked, &[])
    }

    fn with(source: &Path, linked: Linked, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("program");
        let mut gcc = compiler(source);
        gcc.args(STRICT).args(["-O1", "-g"]).args(more);
        gcc.arg("-I").arg(capi().join("include"));
        gcc.arg("-o").arg(&file).arg(source);
        match linked {
            Linked::Static => {
                gcc.arg(library("libvta.a")).args(NATIVE);
            }
            Linked::Dynamic => {
                // The loader wants the name that has the version of the interface.
                let abi = format!("libvta.so.{}", vta::VTA_ABI_VERSION);
                for name in ["libvta.so", &abi] {
                    let link = folder.path().join(name);
                    std::os::unix::fs::symlink(library("libvta.so"), link).unwrap();
                }
                gcc.arg("-L").arg(folder.path()).arg("-lvta");
                gcc.arg(format!("-Wl,-rpath,{}", folder.path().display()));
            }
        }
        succeed(gcc);
        Self { folder, file }
    }

    /// Runs it.
    pub fn run(&self, args: &[&str]) -> Output {
        let mut program = Command::new(&self.file);
        program.args(args).current_dir(self.folder.path());
        program.output().unwrap()
    }

    /// Starts it, with pipes to its standard input and from its output.
    pub fn start(&self, args: &[&str]) -> Child {
        let mut program = Command::new(&self.file);
        program.args(args).current_dir(self.folder.path());
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        program.spawn().unwrap()
    }

    /// Compiles a source and runs it under valgrind, which must find no access that isn't allowed, and no
    /// memory that nothing names any more; where there is no valgrind, with gcc's own checks of both.
    pub fn checked(source: &Path, linked: Linked, args: &[&str]) -> Output {
        let program = Self::new(source, linked);
        let mut valgrind = Command::new("valgrind");
        valgrind.args([
            "--quiet",
            "--error-exitcode=99",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
            "--show-leak-kinds=definite",
        ]);
        valgrind.arg(&program.file).args(args);
        let output = valgrind.current_dir(program.folder.path()).output();
        match output {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!(
                    "there is no valgrind: {} has gcc's checks",
                    source.display()
                );
                let sanitized = ["-fsanitize=address,undefined", "-fno-sanitize-recover"];
                Self::with(source, linked, &sanitized).run(args)
            }
            output => output.unwrap(),
        }
    }
}

/// Compiles a header as a program's only line, by the standards of C and C++.
pub fn compile_alone(header: &Path) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["program.c", "program.cpp"] {
        let source = folder.path().join(name);
        let text = format!(
            "#include \"{}\"\nint main(void) {{ return 0; }}\n",
            header.display()
        );
        std::fs::write(&source, text).unwrap();
        let mut gcc = compiler(&source);
        gcc.args(STRICT).arg("-fsyntax-only").arg(&source);
        gcc.arg("-I").arg(capi().join("include"));
        succeed(gcc);
    }
}

/// The compiler for a source; `CC` and `CXX` name others.
fn compiler(source: &Path) -> Command {
    let cpp = source.extension().is_some_and(|e| e == "cpp");
    let (name, other, standard) = match cpp {
        true => ("CXX", "g++", "-std=c++17"),
        // Functions of POSIX beside those of C.
        false => ("CC", "gcc", "-std=c11"),
    };
    let mut command = Command::new(std::env::var_os(name).unwrap_or_else(|| other.into()));
    command.arg(standard).arg("-D_POSIX_C_SOURCE=200809L");
    command
}

/// A library that cargo made for this test.
fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.with_file_name(name);
    assert!(path.is_file(), "{} is missing", path.display());
    path
}

fn succeed(mut command: Command) {
    let output = command.output();
    let output = output.unwrap_or_else(|error| {
        panic!("{command:?}: {error}; these tests need gcc and g++ (Debian: build-essential)")
    });
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}:\n{text}");
}
