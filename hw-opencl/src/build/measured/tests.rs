use super::*;
use crate::cl::DeviceFacts;
use crate::options::{Cache, Math};
use crate::select::{DeviceKind, Structure};

fn entry() -> DeviceEntry {
    DeviceEntry {
        kind: DeviceKind::Cpu,
        fpga: false,
        selector: "opencl:none:0".to_owned(),
        structure: Structure::Throughput,
        facts: DeviceFacts::nowhere(),
    }
}

#[test]
fn a_choice_is_for_one_device_driver_instance_and_math() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        cache: Cache::Folder(folder.path().to_owned()),
        ..Options::default()
    };
    let (entry, config) = (entry(), Config::default());
    assert_eq!(remembered_scopes(&entry, &config, &options), None);
    let chosen: Scopes = "weights=image,activations=constant".parse().unwrap();
    remember_scopes(&entry, &config, &options, chosen);
    assert_eq!(remembered_scopes(&entry, &config, &options), Some(chosen));

    let changes: [fn(&mut DeviceFacts); 5] = [
        |facts| facts.platform = "other".to_owned(),
        |facts| facts.platform_version = "other".to_owned(),
        |facts| facts.name = "other".to_owned(),
        |facts| facts.driver = "other".to_owned(),
        |facts| facts.version = "other".to_owned(),
    ];
    for change in changes {
        let mut other = entry.clone();
        change(&mut other.facts);
        assert_eq!(remembered_scopes(&other, &config, &options), None);
    }
    let larger = Config::from_json(r#"{"LOG_BLOCK": 5}"#).unwrap();
    assert_eq!(remembered_scopes(&entry, &larger, &options), None);
    let fours = Options {
        math: Some(Math::Fours),
        ..options.clone()
    };
    assert_eq!(remembered_scopes(&entry, &config, &fours), None);
    let nowhere = Options {
        cache: Cache::None,
        ..options
    };
    remember_scopes(&entry, &config, &nowhere, chosen);
    assert_eq!(remembered_scopes(&entry, &config, &nowhere), None);
}

#[test]
fn a_damaged_choice_is_ignored_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        cache: Cache::Folder(folder.path().to_owned()),
        ..Options::default()
    };
    let (entry, config) = (entry(), Config::default());
    let found = || remembered_scopes(&entry, &config, &options);
    let chosen: Scopes = "activations=image2d".parse().unwrap();
    remember_scopes(&entry, &config, &options, chosen);
    let files = std::fs::read_dir(folder.path()).unwrap();
    let path = files.map(|file| file.unwrap().path()).next().unwrap();
    let good = std::fs::read(&path).unwrap();
    for at in [0, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, bad).unwrap();
        assert_eq!(found(), None, "byte {at}");
        std::fs::write(&path, &good[..at]).unwrap();
        assert_eq!(found(), None, "cut to {at}");
    }
    let cache = BinaryCache::new(folder.path().to_owned());
    cache.put(&key(&entry, &config, &options), b"weights=fast");
    assert_eq!(found(), None, "whole, but no scope");
    remember_scopes(&entry, &config, &options, chosen);
    assert_eq!(found(), Some(chosen));
}
