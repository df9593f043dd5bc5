//! Settings of open files, parameters of the module.

use super::refuses;
use crate::{
    abi::{Completion, Dispatch, MODES, MOST_DELAY_NS, Mode, Nothing, SET, Settings},
    module,
    ring::{Operation, Ring},
};
use anyhow::{Result, ensure};
use std::{fs::File, io::Write as _, path::Path};

/// Numbers and structures are those of the header.
pub fn abi(_: &Path) -> Result<()> {
    let nothing = Nothing::open()?;
    ensure!(nothing.get()? == Settings::default(), "set at first: {:?}", nothing.get()?);
    ensure!(nothing.count()? == Default::default(), "counted at first: {:?}", nothing.count()?);
    refuses("an unknown operation", nothing.ioctl(0xDE7F, 0), libc::ENOTTY)?;
    refuses("an operation of terminals", nothing.ioctl(libc::TCGETS as u32, 0), libc::ENOTTY)?;
    refuses("settings at no address", nothing.ioctl(SET, 0), libc::EFAULT)?;
    let mut writer = File::options().write(true).open(crate::abi::PATH)?;
    refuses("a write", writer.write(b"x"), libc::EINVAL)
}

/// Each mode can be set, and stays with its file.
pub fn of_each_file(_: &Path) -> Result<()> {
    let files: Vec<(Settings, Nothing)> = MODES
        .into_iter()
        .enumerate()
        .map(|(index, mode)| {
            let delay_ns = if mode.pends() { index as u64 } else { 0 };
            let settings = mode.with(index as u32, delay_ns);
            Ok((settings, Nothing::set_up(settings)?))
        })
        .collect::<std::io::Result<_>>()?;
    for (settings, nothing) in &files {
        ensure!(nothing.get()? == *settings, "{:?} instead of {settings:?}", nothing.get()?);
    }
    ensure!(Nothing::open()?.get()? == Settings::default(), "a new file begins as another");
    Ok(())
}

/// What cannot be set is refused, and changes nothing.
pub fn refused(_: &Path) -> Result<()> {
    let before = Mode(Completion::Timer, Dispatch::Sequential).with(7, MOST_DELAY_NS);
    let nothing = Nothing::set_up(before)?;
    let plain = Settings::default();
    for wrong in [
        Settings { completion: 4, ..plain },
        Settings { dispatch: 2, ..plain },
        Settings { reserved: 1, ..plain },
        Settings { delay_ns: 1, ..plain },
        Settings { delay_ns: MOST_DELAY_NS + 1, ..before },
    ] {
        refuses(&format!("{wrong:?}"), nothing.set(wrong), libc::EINVAL)?;
    }
    ensure!(nothing.get()? == before, "a refusal left {:?}", nothing.get()?);
    Ok(())
}

/// Parameters that are written count from the next open.
pub fn parameters(_: &Path) -> Result<()> {
    let before = Nothing::open()?;
    for (name, value) in
        [("completion", "work"), ("dispatch", "sequential"), ("bytes", "12"), ("delay_ns", "34")]
    {
        module::set_parameter(name, value)?;
        ensure!(module::parameter(name)? == value, "{name} is {}", module::parameter(name)?);
    }
    let after = Nothing::open()?;
    ensure!(after.get()? == Mode(Completion::Work, Dispatch::Sequential).with(12, 34));
    ensure!(before.get()? == Settings::default(), "a parameter changed an open file");
    refuses("no such place", module::set_parameter("completion", "never"), libc::EINVAL)?;
    refuses("no such order", module::set_parameter("dispatch", "2"), libc::EINVAL)?;
    module::set_parameter("completion", "inline")?;
    refuses("a delay of what is inline", Nothing::open(), libc::EINVAL)
}

/// Parameters are given to insmod, too, and those that do not go together stop it.
pub fn load_parameters(path: &Path) -> Result<()> {
    module::unload()?;
    refuses("a delay inline", module::load(path, "delay_ns=1"), libc::EINVAL)?;
    refuses("no such place", module::load(path, "completion=never"), libc::EINVAL)?;
    module::load(path, "completion=other-cpu dispatch=sequential bytes=5 delay_ns=1000")?;
    let expected = Mode(Completion::OtherCpu, Dispatch::Sequential).with(5, 1000);
    ensure!(Nothing::open()?.get()? == expected);
    Ok(())
}

/// Nothing is set while I/O is pending.
pub fn busy_while_pending(_: &Path) -> Result<()> {
    let settings = Mode(Completion::Timer, Dispatch::Parallel).with(0, MOST_DELAY_NS);
    let nothing = Nothing::set_up(settings)?;
    let mut ring = Ring::new(1)?;
    ring.submit(nothing.fd(), Operation::Read(1), 1, false)?;
    refuses("while a read is pending", nothing.set(Settings::default()), libc::EBUSY)?;
    nothing.cancel()?;
    ring.ends(1)?;
    nothing.set(Settings::default())?;
    Ok(())
}
