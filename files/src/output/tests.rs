use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{FileError, FileLock, Output, write, write_with};

/// Names in a folder, hidden ones too.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

#[test]
fn a_file_that_is_not_committed_leaves_the_old_one_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    write(&path, "old").unwrap();
    let mut out = Output::create(&path).unwrap();
    out.write_all(&vec![7; 1 << 20]).unwrap();
    out.flush().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    drop(out);
    let failed = write_with(&path, |out| {
        out.write_all(b"half")?;
        Err(std::io::Error::other("no more"))
    });
    assert!(matches!(failed, Err(FileError::Write { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(folder.path()), ["a"]);
    write(&path, "new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn what_cannot_be_made_names_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent/a");
    for (path, part) in [
        (folder.path(), "a folder, not a file"),
        (&absent, "No such file"),
        (Path::new(".."), "a folder"),
        (Path::new(""), "not the name of a file"),
    ] {
        let error = write(path, "x").unwrap_err();
        assert!(matches!(error, FileError::Create { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with(&path.display().to_string()), "{text}");
        assert!(text.contains(part), "{text}");
    }
}

#[cfg(unix)]
#[test]
fn permissions_stay_and_new_files_follow_the_mask() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let (plain, ours) = (folder.path().join("plain"), folder.path().join("ours"));
    fs::write(&plain, "").unwrap();
    write(&ours, "x").unwrap();
    assert_eq!(mode(&ours), mode(&plain));
    for bits in [0o600, 0o640, 0o755] {
        fs::set_permissions(&ours, fs::Permissions::from_mode(bits)).unwrap();
        write(&ours, "y").unwrap();
        assert_eq!(mode(&ours), bits);
    }
}

#[cfg(unix)]
#[test]
fn links_lead_to_what_is_replaced() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("deep")).unwrap();
    let (link, next) = (folder.path().join("link"), folder.path().join("deep/next"));
    symlink("deep/next", &link).unwrap();
    symlink("file", &next).unwrap();
    for text in ["made through links", "replaced through links"] {
        write(&link, text).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::symlink_metadata(&next).unwrap().is_symlink());
        let file = folder.path().join("deep/file");
        assert_eq!(fs::read_to_string(file).unwrap(), text);
    }
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    symlink(&a, &b).unwrap();
    symlink(&b, &a).unwrap();
    assert!(write(&a, "x").is_err(), "a circle");
    // A device stays one; a full one is an error of writing.
    for (device, works) in [("/dev/null", true), ("/dev/full", false)] {
        let link = folder.path().join(&device[5..]);
        symlink(device, &link).unwrap();
        match write(&link, "x") {
            Ok(()) => assert!(works, "{device}"),
            Err(error) => assert!(
                !works && matches!(error, FileError::Write { .. }),
                "{error}"
            ),
        }
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}

#[cfg(unix)]
#[test]
fn pipes_are_written_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| fs::read(&pipe).unwrap());
        write(&pipe, "through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
    });
    assert_eq!(names(folder.path()), ["pipe"]);
}

#[test]
fn one_at_a_time_has_a_lock_and_nothing_stays_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("counter");
    write(&path, "0").unwrap();
    let inside = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let lock = FileLock::wait(&path).unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    let n: u32 = fs::read_to_string(&path).unwrap().parse().unwrap();
                    write(&path, (n + 1).to_string()).unwrap();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(lock);
                }
            });
        }
    });
    assert_eq!(fs::read_to_string(&path).unwrap(), "200");
    assert_eq!(names(folder.path()), ["counter"]);
    let held = FileLock::wait(&path).unwrap();
    let refused = FileLock::now(&path).unwrap_err();
    assert!(matches!(refused, FileError::Locked { .. }), "{refused}");
    drop(held);
    FileLock::now(&path).unwrap();
}
