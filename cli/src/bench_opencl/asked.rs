//! The devices that are asked for, and the machines on them.

use anyhow::{Context, Result, ensure};
use vta_app::device;
use vta_isa::Config;

use crate::args::BenchArgs;

/// The configuration for each number of images.
pub fn configs(args: &BenchArgs) -> Result<Vec<Config>> {
    let config = device::config(args.config.as_ref())?;
    if args.batch.is_empty() {
        return Ok(vec![config]);
    }
    let batches = args.batch.iter();
    batches.map(|&batch| with_batch(&config, batch)).collect()
}

/// The devices of a list, all of OpenCL.
pub fn names(devices: &str) -> Result<Vec<&str>> {
    let names: Vec<&str> = devices.split(',').collect();
    for name in &names {
        ensure!(
            device::is_opencl(name),
            "--device {name}: OpenCL devices are measured, opencl[:SEL]"
        );
    }
    Ok(names)
}

/// A configuration whose runs take `batch` images: scratchpads that hold one image's tiles keep
/// their depth.
fn with_batch(config: &Config, batch: usize) -> Result<Config> {
    ensure!(
        batch.is_power_of_two(),
        "--batch {batch}: VTA's BATCH is a power of two"
    );
    let mut keys: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&config.to_json())?;
    let wanted = i64::from(batch.trailing_zeros());
    let more = wanted - i64::from(config.batch().trailing_zeros());
    for key in ["LOG_BATCH", "LOG_INP_BUFF_SIZE", "LOG_ACC_BUFF_SIZE"] {
        let value = keys.get(key).and_then(serde_json::Value::as_i64);
        let value = value.with_context(|| format!("a configuration without {key}"))? + more;
        keys.insert(key.to_owned(), value.into());
    }
    let config = Config::from_json(&serde_json::to_string(&keys)?);
    config.with_context(|| format!("--batch {batch}"))
}

#[cfg(test)]
mod tests {
    use vta_isa::MemType;

    use super::*;

    #[test]
    fn a_larger_batch_keeps_the_depths() {
        let one = Config::default();
        let many = with_batch(&one, 16).unwrap();
        assert_eq!(many.batch(), 16);
        for mem in MemType::ALL {
            assert_eq!(many.depth(mem), one.depth(mem), "{mem:?}");
        }
        assert_eq!(with_batch(&many, 1).unwrap(), one);
        assert!(with_batch(&one, 3).is_err());
        assert!(with_batch(&one, 1 << 20).is_err());
    }
}
