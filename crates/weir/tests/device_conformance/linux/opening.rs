//! What is opened, what is not, and what is said of it.

use super::{
    nothing,
    support::{PATIENCE, Place, device_of, open},
};
use libtest_mimic::{Completion, Failed, Trial};
use std::{
    fs,
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    time::Duration,
};
use weir::{
    Error,
    device::{AnyDesign, Device, Direction, Kind, MOST_DELAY, Reads},
};

type Check = fn() -> Result<Completion, Failed>;

pub fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 14] = [
        ("what_may_be_read", what_may_be_read),
        ("what_may_be_written_to", what_may_be_written_to),
        ("what_must_not_be_written_to", what_must_not_be_written_to),
        ("nothing_is_there", nothing_is_there),
        ("directories_and_sockets", directories_and_sockets),
        ("a_block_device", a_block_device),
        ("a_character_device_that_is_not_in_the_list", a_character_device_that_is_not_in_the_list),
        ("a_listed_character_device_is_read", a_listed_character_device_is_read),
        ("a_file_that_the_kernel_makes_up", a_file_that_the_kernel_makes_up),
        ("what_others_read_is_not_consumed", what_others_read_is_not_consumed),
        ("the_nothing_device", the_nothing_device),
        ("no_permission", no_permission),
        ("descriptors", descriptors),
        ("bad_options", bad_options),
    ];
    let trial =
        |(name, check): (&str, Check)| Trial::ignorable_test(format!("opening::{name}"), check);
    checks.into_iter().map(trial).collect()
}

fn refused(path: impl AsRef<Path>) -> String {
    let error = Device::open(path, &[]).expect_err("it must not be opened");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    error.to_string()
}

fn what_may_be_read() -> Result<Completion, Failed> {
    let place = Place::new();
    for (path, kind) in [
        ("/dev/null".as_ref(), Kind::Null),
        ("/dev/zero".as_ref(), Kind::Zero),
        ("/dev/full".as_ref(), Kind::Character),
        ("/dev/urandom".as_ref(), Kind::Character),
        (place.file(17).as_path(), Kind::File),
    ] {
        let device = open(path);
        assert_eq!((device.kind(), device.path()), (kind, path));
        assert_eq!(device.bytes(), if kind == Kind::File { 17 } else { 0 });
    }
    assert_eq!(Device::semaphore()?.kind(), Kind::Event);
    assert_eq!(Device::pipe()?.0.kind(), Kind::Pipe);
    let timer = Device::timer(Duration::from_micros(10))?;
    assert_eq!((timer.kind(), timer.path()), (Kind::Timer, Path::new("timer:10us")));
    // A link leads to what it leads to.
    let link = place.path("link");
    std::os::unix::fs::symlink("/dev/zero", &link)?;
    assert_eq!(open(link).kind(), Kind::Zero);
    Ok(Completion::Completed)
}

fn what_may_be_written_to() -> Result<Completion, Failed> {
    let place = Place::new();
    let link = place.path("another-name");
    std::os::unix::fs::symlink("/dev/null", &link)?;
    for (path, kind) in [
        ("/dev/null".as_ref(), Kind::Null),
        (&*link, Kind::Null),
        ("/dev/zero".as_ref(), Kind::Zero),
    ] {
        let device = Device::open_for_writing(path)?;
        assert_eq!((device.kind(), device.direction()), (kind, Direction::Write));
    }
    assert_eq!(open("/dev/null").direction(), Direction::Read);
    // A descriptor of this process only if it is open for that.
    let other = fs::OpenOptions::new().write(true).open("/dev/null")?;
    Device::open_for_writing(format!("/dev/fd/{}", other.as_raw_fd()))?;
    let read_only = fs::File::open("/dev/null")?;
    assert!(refused_writes(format!("/dev/fd/{}", read_only.as_raw_fd())).contains("reading only"));
    Ok(Completion::Completed)
}

fn refused_writes(path: impl AsRef<Path>) -> String {
    let error = Device::open_for_writing(path).expect_err("it must not be written to");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    error.to_string()
}

fn what_must_not_be_written_to() -> Result<Completion, Failed> {
    let place = Place::new();
    let file = place.file(17);
    let before = fs::read(&file)?;
    let link = place.path("null");
    std::os::unix::fs::symlink(&file, &link)?;
    let (_terminal, terminal) = terminal()?;
    let (_reader, writer) = io::pipe()?;
    let mut all = vec![
        (file.clone(), "a regular file"),
        // A name says nothing.
        (link, "a regular file"),
        (place.fifo(), "a pipe"),
        (format!("/dev/fd/{}", writer.as_raw_fd()).into(), "a pipe"),
        ("/dev/full".into(), "a character device"),
        ("/dev/urandom".into(), "a character device"),
        (terminal, "a character device"),
        ("/dev".into(), "a directory"),
        ("/proc/self/comm".into(), "a write may have side effects"),
    ];
    if nothing::missing().is_none() {
        all.push((nothing::PATH.into(), "no writes"));
    }
    if let Some(block) = block_device(&place)? {
        all.push((block, "a block device"));
    }
    for (path, what) in all {
        let said = refused_writes(&path);
        let names_both = said.contains("/dev/null (1:3)") && said.contains("/dev/zero (1:5)");
        assert!(said.contains(what) && names_both && said.contains("no flag"), "{path:?}: {said}");
    }
    assert_eq!(fs::read(&file)?, before);
    Ok(Completion::Completed)
}

/// A terminal of its own: who has it open, and its path.
fn terminal() -> io::Result<(fs::File, PathBuf)> {
    let terminal = fs::OpenOptions::new().read(true).write(true).open("/dev/ptmx")?;
    let mut number: libc::c_uint = 0;
    // SAFETY: the kernel writes into the number, which outlives the call.
    if unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGPTN, &raw mut number) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((terminal, format!("/dev/pts/{number}").into()))
}

fn nothing_is_there() -> Result<Completion, Failed> {
    let error = Device::open("/dev/weir-has-no-such-device", &[]).expect_err("nothing there");
    let text = error.to_string();
    assert!(text.contains("no-such-device") && text.contains("check the path"), "{text}");
    assert!(text.contains("os error 2"), "{text}");
    Ok(Completion::Completed)
}

fn directories_and_sockets() -> Result<Completion, Failed> {
    assert!(refused("/dev").contains("directory"));
    let place = Place::new();
    let path = place.path("socket");
    let _listener = UnixListener::bind(&path)?;
    assert!(refused(path).contains("socket"));
    Ok(Completion::Completed)
}

/// Makes a node, if that is permitted.
fn node(path: &Path, kind: libc::mode_t, number: libc::dev_t) -> Result<bool, Failed> {
    let text = std::ffi::CString::new(path.to_str().expect("text"))?;
    // SAFETY: the path is a string that ends with a zero.
    Ok(unsafe { libc::mknod(text.as_ptr(), kind | 0o600, number) } == 0)
}

/// A node of a block device that no driver serves: to be refused it need not be opened. `None` where none can
/// be made.
fn block_device(place: &Place) -> Result<Option<PathBuf>, Failed> {
    let path = place.path("block");
    Ok(node(&path, libc::S_IFBLK, libc::makedev(60, 7))?.then_some(path))
}

fn a_block_device() -> Result<Completion, Failed> {
    let place = Place::new();
    let Some(path) = block_device(&place)? else {
        let why = format!("no block device can be made: {}", io::Error::last_os_error());
        return Ok(Completion::ignored_with(why));
    };
    assert!(refused(&path).contains("no flag"));
    let named =
        Device::open(&path, std::slice::from_ref(&path)).expect_err("naming it changes nothing");
    assert!(named.to_string().contains("block device"), "{named}");
    Ok(Completion::Completed)
}

fn a_character_device_that_is_not_in_the_list() -> Result<Completion, Failed> {
    let place = Place::new();
    // /dev/mem of another name, which need not be opened to be judged; a driver that nobody has.
    for (major, minor) in [(1, 1), (60, 7)] {
        let path = place.path(&format!("character-{major}-{minor}"));
        if !node(&path, libc::S_IFCHR, libc::makedev(major, minor))? {
            let why = format!("no node can be made: {}", io::Error::last_os_error());
            return Ok(Completion::ignored_with(why));
        }
        let said = refused(&path);
        assert!(said.contains("--device") && said.contains("watchdog"), "{said}");
        let other = Device::open(&path, &["/dev/random".into()]);
        assert!(matches!(other, Err(Error::Refused { .. })), "another was named: {other:?}");
    }
    // Named it is opened, and only then is it found that nobody serves it.
    let path = place.path("character-60-7");
    let named = Device::open(&path, std::slice::from_ref(&path));
    assert!(matches!(named, Err(Error::Io { .. })), "{named:?}");
    Ok(Completion::Completed)
}

fn a_listed_character_device_is_read() -> Result<Completion, Failed> {
    let device = open("/dev/urandom");
    assert_eq!(device.kind(), Kind::Character);
    for design in ["sync", "ring"] {
        let design = AnyDesign::parse(design)?;
        if design.availability().is_err() {
            continue;
        }
        let running = Reads::of(&device).length(32).ios(100).start(design, |_| ())?;
        assert!(running.wait_for(PATIENCE));
        let total = running.stop().total();
        assert_eq!((total.completed, total.bytes), (100, 3200));
    }
    Ok(Completion::Completed)
}

/// They are regular files by their type, and no read of them is known to be harmless.
fn a_file_that_the_kernel_makes_up() -> Result<Completion, Failed> {
    for (path, system) in
        [("/proc/self/ns/net", "nsfs"), ("/proc/self/comm", "proc"), ("/sys/kernel/notes", "sysfs")]
    {
        if !Path::new(path).exists() {
            continue;
        }
        let said = refused(path);
        assert!(said.contains(&format!("({system})")) && said.contains("--device"), "{said}");
    }
    let comm = Device::open("/proc/self/comm", &["/proc/self/comm".into()])?;
    assert_eq!(comm.kind(), Kind::File);
    Ok(Completion::Completed)
}

/// Whoever holds the other end would lack what is read: nothing is opened, taken, or named past that.
fn what_others_read_is_not_consumed() -> Result<Completion, Failed> {
    let place = Place::new();
    let (mut reader, mut writer) = io::pipe()?;
    writer.write_all(b"for another")?;
    let (ours, mut theirs) = UnixStream::pair()?;
    theirs.write_all(b"for another")?;
    let (_holder, terminal) = terminal()?;
    let event = event(7)?;
    let fd = |fd: &dyn AsRawFd| PathBuf::from(format!("/dev/fd/{}", fd.as_raw_fd()));
    let of_process = |fd: &dyn AsRawFd| {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd()))
    };
    for (path, what) in [
        (place.fifo(), "a pipe"),
        (fd(&reader), "a pipe"),
        (of_process(&reader), "a pipe"),
        (PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd())), "a pipe"),
        (fd(&writer), "a pipe"),
        (fd(&ours), "a socket"),
        (fd(&event), "an eventfd"),
        (of_process(&event), "an eventfd"),
        (terminal, "a terminal"),
        ("/dev/tty".into(), "a terminal"),
        ("/dev/ptmx".into(), "a terminal"),
    ] {
        for named in [&[][..], std::slice::from_ref(&path)] {
            let said = Device::open(&path, named).expect_err("it is of others");
            assert!(matches!(said, Error::Refused { .. }), "{path:?}: {said:?}");
            let said = said.to_string();
            assert!(said.contains(what) && said.contains("no flag"), "{path:?}: {said}");
            assert!(said.contains("lost to its intended reader"), "{path:?}: {said}");
        }
    }
    // All is still there, for whom it was meant.
    drop(writer);
    drop(theirs);
    let (mut piped, mut sent) = (String::new(), String::new());
    reader.read_to_string(&mut piped)?;
    (&ours).read_to_string(&mut sent)?;
    assert_eq!((&*piped, &*sent), ("for another", "for another"));
    let mut count = [0; 8];
    fs::File::from(event).read_exact(&mut count)?;
    assert_eq!(u64::from_ne_bytes(count), 7);
    Ok(Completion::Completed)
}

/// An eventfd that counts so far.
fn event(count: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::eventfd(count, libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// By whatever name, without being named: it is known by what the kernel says of it.
fn the_nothing_device() -> Result<Completion, Failed> {
    if let Some(why) = nothing::missing() {
        return Ok(Completion::ignored_with(why));
    }
    let place = Place::new();
    let link = place.path("another-name");
    std::os::unix::fs::symlink(nothing::PATH, &link)?;
    for path in [Path::new(nothing::PATH), &link] {
        let device = open(path);
        assert_eq!(device.kind(), Kind::Nothing);
        let running = Reads::of(&device).ios(1).start(AnyDesign::parse("sync")?, |_| ())?;
        let effective = running.effective();
        for name in ["completion", "dispatch", "brings-bytes", "delay-ns"] {
            assert!(effective.iter().any(|(known, _)| known == name), "{name}: {effective:?}");
        }
    }
    Ok(Completion::Completed)
}

fn no_permission() -> Result<Completion, Failed> {
    let place = Place::new();
    let path = place.file(1);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o0))?;
    match Device::open(&path, &[]) {
        Ok(_) => Ok(Completion::ignored_with("this user may read everything")),
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("may read it") && text.contains("os error 13"), "{text}");
            Ok(Completion::Completed)
        }
    }
}

fn descriptors() -> Result<Completion, Failed> {
    let place = Place::new();
    let path = place.file(9);
    assert_eq!(device_of(&fs::File::open(&path)?).kind(), Kind::File);
    let writer = fs::OpenOptions::new().write(true).open(&path)?;
    assert!(refused(format!("/dev/fd/{}", writer.as_raw_fd())).contains("writing only"));
    let closed = Device::open("/dev/fd/19999", &[]).expect_err("nobody opened it").to_string();
    assert!(closed.contains("os error 9"), "{closed}");
    Ok(Completion::Completed)
}

fn bad_options() -> Result<Completion, Failed> {
    let start = |reads: Reads| reads.start(AnyDesign::parse("sync").expect("it is there"), |_| ());
    let problem = |reads| start(reads).err().expect("wrong").to_string();
    let null = open("/dev/null");
    assert!(problem(Reads::of(&null).ios(0)).contains("1 or more"));
    assert!(problem(Reads::of(&null).length(usize::MAX)).contains("16777216"));
    assert!(problem(Reads::of(&null).sample_every(u32::MAX)).contains("sample-every"));
    for (device, length) in [(Device::semaphore()?, 7), (Device::timer(Duration::ZERO)?, 0)] {
        assert!(problem(Reads::of(&device).length(length)).contains("8 or more"));
    }
    let long = Device::timer(MOST_DELAY + Duration::from_nanos(1)).expect_err("too long");
    assert!(long.to_string().contains("1000000001ns is not allowed; allowed: 0 to 1s"), "{long}");
    for design in ["sync-empty", "libaio"] {
        let design = AnyDesign::parse(design)?;
        if design.availability().is_ok() {
            let refused = Reads::of(&Device::timer(Duration::ZERO)?).start(design, |_| ());
            assert!(matches!(refused, Err(Error::Unavailable(_))));
        }
    }
    for text in
        ["ring --depth 0", "ring --depth 99999", "overlapped-pool --depth 0", "port --depth 0"]
    {
        let error = AnyDesign::parse(text).expect_err(text).to_string();
        assert!(error.contains("allowed: 1 to 16384"), "{text}: {error}");
    }
    let unknown = AnyDesign::parse("sync --depth 3").expect_err("it has none").to_string();
    assert!(unknown.contains("no option"), "{unknown}");
    for design in ["control", "uring-cmd"] {
        let other = Reads::of(&null).start(AnyDesign::parse(design)?, |_| ());
        let error = other.err().expect("it is another device");
        assert!(matches!(error, Error::Option { .. }), "{error:?}");
        assert!(error.to_string().contains("name /dev/nothing"), "{error}");
    }
    Ok(Completion::Completed)
}
