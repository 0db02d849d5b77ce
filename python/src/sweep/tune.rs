//! Tiles chosen by counting cycles, in pieces.

use pyo3::prelude::*;
use vta_app::Error;
use vta_app::Target;
use vta_app::device::Machine;
use vta_app::open::layer_or_network;
use vta_compiler::tune::{Cache, Subject};

use crate::error::raise;
use crate::options::config;
use crate::watch::aside;

/// A network's distinct convolutions, whose tiles are chosen one by one; `pyvta.cluster.tune` is made of it.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct Tuner {
    tuner: vta_app::sweep::Tuner,
    pieces: Vec<Subject>,
}

#[pymethods]
impl Tuner {
    #[new]
    #[pyo3(signature = (model, *, config = None, board = None, timing = None, candidates = 8))]
    fn new(
        py: Python<'_>,
        model: &str,
        config: Option<&Bound<'_, PyAny>>,
        board: Option<&str>,
        timing: Option<&str>,
        candidates: usize,
    ) -> PyResult<Self> {
        let target = Target {
            config: config.map(self::config).transpose()?,
            board: board.map(str::to_owned),
            timing: timing.map(str::to_owned),
            ..Target::default()
        };
        aside(py, None, |_| {
            let machine = Machine::read(&target)?;
            let tuner = vta_app::sweep::Tuner::new(layer_or_network(model)?, machine, candidates)?;
            let pieces = tuner.subjects()?;
            Ok(Self { tuner, pieces })
        })
    }

    fn __len__(&self) -> usize {
        self.pieces.len()
    }

    /// Measures a piece: a cache as text that knows it alone.
    fn measure(&self, py: Python<'_>, piece: usize) -> PyResult<String> {
        let subject = self.pieces.get(piece).ok_or_else(|| {
            let pieces = self.pieces.len();
            raise(Error::Usage(
                format!("there is no piece {piece} among {pieces}").into(),
            ))
        })?;
        let found = py.detach(|| text(&self.tuner.measure(subject)?));
        found.map_err(raise)
    }

    /// Caches as one, and the cycles of a pass with the tiles of the search alone and with the cache's.
    fn end(&self, py: Python<'_>, caches: Vec<String>) -> PyResult<(String, u64, u64)> {
        aside(py, None, |_| {
            let mut all = Cache::new();
            for cache in &caches {
                all.merge(&Cache::from_json(cache)?);
            }
            let untuned = self.tuner.total(&Cache::new())?;
            Ok((text(&all)?, untuned, self.tuner.total(&all)?))
        })
    }
}

fn text(cache: &Cache) -> Result<String, Error> {
    Ok(cache.to_json()?)
}
