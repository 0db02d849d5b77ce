//! The library of operators: rten.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value, ValueOrView, ValueView};
use rten_gemm::{GemmExecutor, GemmInputA, GemmInputB, GemmOptions};
use rten_tensor::prelude::*;
use rten_tensor::{NdTensorView, TensorView};

use super::{EngineError, Lent, Matrix, Tensor};
use crate::graph::Data;

/// A loaded ONNX model of the library's operators.
pub struct Library {
    model: Model,
}

/// Pools of one thread that no run uses at the moment. The library computes on pools alone and starting
/// one takes as long as a small layer, so that they are kept, as many as ever ran at once.
static IDLE: Mutex<Vec<Arc<ThreadPool>>> = Mutex::new(Vec::new());

impl Library {
    /// Loads a model from the bytes of an ONNX file.
    ///
    /// # Errors
    /// [`EngineError::Load`], with the node where one is at fault; [`EngineError::Thread`].
    pub fn new(bytes: Vec<u8>) -> Result<Self, EngineError> {
        let load = move || {
            let options = || ModelOptions::with_all_ops();
            let model = options().enable_optimization(false).load(bytes);
            model.map_err(|e| EngineError::Load(e.to_string()))
        };
        let model = on_one_thread(|_| load())?;
        let model = model.unwrap_or_else(|panic| Err(EngineError::Load(panic)))?;
        Ok(Self { model })
    }

    /// As [`super::Engine::run`].
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn run(&self, inputs: &[Lent<'_>], outputs: &[&str]) -> Result<Vec<Tensor>, EngineError> {
        let mut given = Vec::with_capacity(inputs.len());
        for lent in inputs {
            given.push((self.id(lent.name)?, value(lent)?));
        }
        // A value is asked for once, and one that is given not at all.
        let mut wanted = Vec::new();
        let mut sources = Vec::with_capacity(outputs.len());
        for name in outputs {
            let id = self.id(name)?;
            let input = given.iter().position(|(other, _)| *other == id);
            let known = wanted.iter().position(|other| *other == id);
            sources.push(match (input, known) {
                (Some(input), _) => Err(input),
                (None, Some(at)) => Ok(at),
                (None, None) => {
                    wanted.push(id);
                    Ok(wanted.len() - 1)
                }
            });
        }
        let run = |pool| {
            let options = RunOptions::default().with_thread_pool(Some(pool));
            let values = self.model.run(given, &wanted, Some(options));
            values.map_err(|e| EngineError::Run(e.to_string()))
        };
        let values = on_one_thread(run)?;
        let values = values.unwrap_or_else(|panic| Err(EngineError::Run(panic)))?;
        let values = values.into_iter().map(tensor);
        let values: Vec<Tensor> = values.collect::<Result<_, _>>()?;
        let mut values: Vec<Option<Tensor>> = values.into_iter().map(Some).collect();
        let mut made = Vec::with_capacity(sources.len());
        for (index, source) in sources.iter().enumerate() {
            let again = || sources[index + 1..].contains(source);
            made.push(match source {
                Ok(at) if again() => values[*at].clone(),
                Ok(at) => values[*at].take(),
                Err(input) => Some(inputs[*input].copied()),
            });
        }
        let made: Option<Vec<Tensor>> = made.into_iter().collect();
        made.ok_or_else(|| EngineError::Run("internal error: a value is lost".to_owned()))
    }

    /// The model's inputs and outputs come first: a node may have the name of a value.
    fn id(&self, name: &str) -> Result<NodeId, EngineError> {
        let ends = self.model.input_ids().iter().chain(self.model.output_ids());
        let named = |id: &NodeId| {
            let info = self.model.node_info(*id);
            info.and_then(|info| info.name()) == Some(name)
        };
        let id = ends.copied().find(named);
        let id = id.or_else(|| self.model.find_node(name));
        id.ok_or_else(|| EngineError::Name(name.to_owned()))
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.model.fmt(f)
    }
}

/// Adds a product of two matrices to `sums`, row by row. They don't depend on how many threads there are.
///
/// # Panics
/// Values of other sizes.
pub fn add_product(sums: &mut [f32], left: Matrix<'_>, right: Matrix<'_>) {
    let options = GemmOptions {
        beta: 1.0,
        ..GemmOptions::default()
    };
    let inputs = (
        GemmInputA::Unpacked(steps(left)),
        GemmInputB::Unpacked(steps(right)),
    );
    let done = GemmExecutor::<f32>::new().gemm(sums, inputs.0, inputs.1, options);
    assert!(done.is_ok(), "sizes that don't agree: {done:?}");
}

fn steps(matrix: Matrix<'_>) -> NdTensorView<'_, f32, 2> {
    let Matrix {
        values,
        sizes,
        strides,
    } = matrix;
    let view = NdTensorView::from_slice_with_strides(sizes, values, strides);
    view.expect("a matrix whose values don't reach")
}

/// Does work with a pool of one thread, on that thread; the words of a panic are an error.
fn on_one_thread<R: Send>(
    work: impl FnOnce(Arc<ThreadPool>) -> R + Send,
) -> Result<Result<R, String>, EngineError> {
    // There is one thread, and a pool without any computes on it.
    if cfg!(target_family = "wasm") {
        return Ok(Ok(work(Arc::new(ThreadPool::with_num_threads(1)))));
    }
    // A thread of a pool that waits for another pool does other work of its own meanwhile, which may be
    // one more run: it waits for a thread of no pool instead.
    if rayon::current_thread_index().is_some() {
        return std::thread::scope(|scope| {
            let other = std::thread::Builder::new().spawn_scoped(scope, || on_one_thread(work));
            let done = other.map_err(|_| EngineError::Thread)?.join();
            done.unwrap_or_else(|panic| Ok(Err(words(&*panic))))
        });
    }
    let idle = || IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = idle().pop();
    let pool = match kept {
        Some(pool) => pool,
        None => {
            let pool = ThreadPool::with_num_threads(1);
            // Without threads it would compute on whatever pool it is called from.
            if pool.run(|| rayon::current_thread_index().is_none()) {
                return Err(EngineError::Thread);
            }
            Arc::new(pool)
        }
    };
    let inner = Arc::clone(&pool);
    let done = catch_unwind(AssertUnwindSafe(|| pool.run(|| work(inner))));
    idle().push(pool);
    Ok(done.map_err(|panic| words(&*panic)))
}

/// What a panic says.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "it panicked".to_owned())
}

/// A tensor as the library takes it.
fn value<'t>(lent: &Lent<'t>) -> Result<ValueOrView<'t>, EngineError> {
    let nearest = |&x: &i64| x.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    let owned = |v: Vec<i32>| {
        let shape = lent.checked()?.shape;
        let tensor = rten_tensor::Tensor::try_from_data(shape, v);
        let tensor = tensor.map_err(|e| EngineError::Run(e.to_string()))?;
        Ok(Value::from(tensor).into())
    };
    Ok(match lent.data {
        Data::F32(v) => ValueView::from(view(lent, v)?).into(),
        Data::I8(v) => ValueView::from(view(lent, v)?).into(),
        Data::U8(v) => ValueView::from(view(lent, v)?).into(),
        Data::I32(v) => ValueView::from(view(lent, v)?).into(),
        Data::I16(v) => return owned(v.iter().map(|&x| x.into()).collect()),
        Data::U16(v) => return owned(v.iter().map(|&x| x.into()).collect()),
        Data::I64(v) => return owned(v.iter().map(nearest).collect()),
        Data::Bool(v) => return owned(v.iter().map(|&x| x.into()).collect()),
    })
}

fn view<'t, T>(lent: &Lent<'t>, data: &'t [T]) -> Result<TensorView<'t, T>, EngineError> {
    let shape = lent.checked()?.shape;
    TensorView::try_from_data(shape, data).map_err(|e| EngineError::Run(e.to_string()))
}

/// What the library gave.
fn tensor(value: Value) -> Result<Tensor, EngineError> {
    let (shape, data) = match value {
        Value::FloatTensor(t) => (t.shape().to_vec(), Data::F32(t.to_vec())),
        Value::Int32Tensor(t) => (t.shape().to_vec(), Data::I32(t.to_vec())),
        Value::Int8Tensor(t) => (t.shape().to_vec(), Data::I8(t.to_vec())),
        Value::UInt8Tensor(t) => (t.shape().to_vec(), Data::U8(t.to_vec())),
        other => {
            let text = format!("a value of type {:?}", other.dtype());
            return Err(EngineError::Run(text));
        }
    };
    Ok(Tensor { shape, data })
}

#[cfg(test)]
mod tests;
