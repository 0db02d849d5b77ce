//! The same network with onnxruntime on the same CPU, in turns with ours.
//!
//! A Python process holds the other session and answers each line that it is sent with the
//! milliseconds of one run. The model is the zoo's network, exported as QDQ ONNX.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use vta_compiler::{onnx, zoo};
use vta_files::output;

use super::spread::median;

/// The network that is compared.
pub(super) const NETWORK: &str = "resnet18";
/// Sent to Python, which needs onnxruntime and numpy.
const SCRIPT: &str = include_str!("onnxruntime.py");

/// Medians of runs that took turns, one thread each.
pub(super) struct Comparison {
    version: String,
    ours_ms: f64,
    theirs_ms: f64,
}

impl Comparison {
    /// Our time in theirs.
    fn ratio(&self) -> f64 {
        self.ours_ms / self.theirs_ms
    }

    pub fn json(&self) -> serde_json::Value {
        json!({
            "network": NETWORK, "version": self.version, "threads": 1,
            "ms": self.theirs_ms, "ours_ms": self.ours_ms, "ratio": self.ratio(),
        })
    }

    pub fn text(&self) -> String {
        format!(
            "{NETWORK}, one thread: {:.1} ms, onnxruntime {} (int8 QDQ) {:.1} ms: {:.2} of its time",
            self.ours_ms,
            self.version,
            self.theirs_ms,
            self.ratio()
        )
    }
}

/// Runs both `samples` times in turns. `ours` gives the seconds of one run.
///
/// # Errors
/// What keeps the other from running: no such Python, no onnxruntime.
pub(super) fn compare(
    python: &str,
    samples: usize,
    mut ours: impl FnMut() -> Result<f64>,
) -> Result<Comparison> {
    let folder = tempfile::tempdir().context("a temporary folder for the model")?;
    let model = folder.path().join("network.onnx");
    output::write(&model, onnx::save(&zoo::graph(NETWORK)?))?;
    let mut theirs = Theirs::start(python, &model.to_string_lossy())?;
    ours()?;
    theirs.run()?;
    let (mut our_ms, mut their_ms) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        our_ms.push(1e3 * ours()?);
        their_ms.push(theirs.run()?);
    }
    Ok(Comparison {
        version: theirs.version.clone(),
        ours_ms: median(our_ms),
        theirs_ms: median(their_ms),
    })
}

/// The other process. It ends when its input does.
struct Theirs {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    version: String,
}

impl Theirs {
    fn start(python: &str, model: &str) -> Result<Self> {
        let mut child = Command::new(python)
            .args(["-c", SCRIPT, model])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {python} (see scripts/bench-onnxruntime)"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("the process has no output")?;
        let mut theirs = Self {
            child,
            input,
            output: BufReader::new(output),
            version: String::new(),
        };
        theirs.version = theirs.line()?;
        Ok(theirs)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(
            line.ends_with('\n'),
            "Python with onnxruntime and numpy ended early (see scripts/bench-onnxruntime)"
        );
        Ok(line.trim().to_owned())
    }

    /// Milliseconds of one run.
    fn run(&mut self) -> Result<f64> {
        let input = self.input.as_mut().context("the process has no input")?;
        input.write_all(b"\n")?;
        input.flush()?;
        let line = self.line()?;
        line.parse()
            .with_context(|| format!("{line:?} is no time in milliseconds"))
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        self.input = None;
        // It has nothing to do but end; how it ends doesn't matter any more.
        let _ = self.child.wait();
    }
}
