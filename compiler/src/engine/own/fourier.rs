//! DFT and STFT: Fourier transforms of lines of numbers, which are real or complex. They are computed in doubles.

use rustfft::FftPlanner;
use rustfft::num_complex::Complex64;

use super::asked::Asked;
use crate::engine::Tensor;
use crate::graph::Data;
use crate::onnx::elements;
use crate::operators::reduce::lines;

pub(super) fn compute(of: &Asked<'_>) -> Result<Vec<Tensor>, String> {
    let scalar = |argument, name: &str| {
        let Some(given) = of.input(argument) else {
            return Ok(None);
        };
        let number = given.data.integers().and_then(|v| v.first().copied());
        let missing = || format!("its {name} is no integer");
        number.ok_or_else(missing).map(Some)
    };
    let is_dft = of.node.op_type == "DFT";
    let (shape, third) = (of.required(0)?.shape, of.input(2).map(|third| third.shape));
    let int = |name: &str, default| of.int(name, default);
    let (lines, shape) = lines(&of.node.op_type, shape, third, &scalar, &int)?;
    let window = if is_dft { None } else { of.floats(2)? };
    let is_inverse = is_dft && of.int("inverse", 0) != 0;
    let values = of.floats(0)?.ok_or("its input is missing")?;
    let count = elements("output", &shape).map_err(|e| e.to_string())?;
    let mut made = vec![0.0; count];
    let mut planner = FftPlanner::<f64>::new();
    let transform = if is_inverse {
        planner.plan_fft_inverse(lines.length)
    } else {
        planner.plan_fft_forward(lines.length)
    };
    let scale = if is_inverse {
        1.0 / lines.length as f64
    } else {
        1.0
    };
    let mut scratch = vec![Complex64::default(); transform.get_inplace_scratch_len()];
    let mut line = vec![Complex64::default(); lines.length];
    for outer in 0..lines.outer {
        for frame in 0..lines.frames {
            for inner in 0..lines.inner {
                line.fill(Complex64::default());
                let first = frame * lines.step;
                let taken = lines.given.min(lines.size - first);
                for (k, number) in line[..taken].iter_mut().enumerate() {
                    let at = (outer * lines.size + first + k) * lines.inner + inner;
                    let parts = &values[at * lines.parts[0]..][..lines.parts[0]];
                    let part = |at| parts.get(at).map_or(0.0, |v: &f32| f64::from(*v));
                    let weight = window.map_or(1.0, |window| f64::from(window[k]));
                    *number = Complex64::new(part(0), part(1)) * weight;
                }
                // The other side of a transform of real numbers.
                for k in lines.given..lines.length {
                    line[k] = line[lines.length - k].conj();
                }
                transform.process_with_scratch(&mut line, &mut scratch);
                let place = (outer * lines.frames + frame) * lines.bins;
                for (bin, number) in line[..lines.bins].iter().enumerate() {
                    let at = ((place + bin) * lines.inner + inner) * lines.parts[1];
                    made[at] = (number.re * scale) as f32;
                    if lines.parts[1] == 2 {
                        made[at + 1] = (number.im * scale) as f32;
                    }
                }
            }
        }
    }
    let data = Data::F32(made);
    Ok(vec![Tensor { shape, data }])
}
