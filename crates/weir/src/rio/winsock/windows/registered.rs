//! Memory that is registered: the slices of a region, and room for the control data of each where that is asked for.

use super::functions::Functions;
use crate::{
    Error,
    memory::Region,
    socket::native::{CONTROL_BYTES, Control, last_error},
};
use std::{
    cell::UnsafeCell,
    io,
    mem::ManuallyDrop,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use windows_sys::Win32::Networking::WinSock::{RIO_BUF, RIO_BUFFERID};

/// RIO_INVALID_BUFFERID.
const NONE: RIO_BUFFERID = 0xFFFF_FFFF;

/// The longest piece that is registered as one: an offset has 32 bits.
const PIECE_BYTES: usize = 1 << 30;

/// RIO_CMSG_BUFFER: the length of all, and what aligns the first header behind it.
pub const CONTROL_HEAD: usize = 8;

/// Control data of one request.
#[repr(C, align(8))]
pub struct Controls {
    /// Bytes of all of it, these eight among them.
    pub total: u32,
    _aligned: u32,
    pub data: Control,
}

/// Those of all slices, each with its slice's owner.
type AllControls = Box<[UnsafeCell<Controls>]>;

pub struct Registered {
    functions: Functions,
    region: Arc<Region>,
    /// The pieces of the region, each of as many slices as a power of two.
    pieces: Vec<RIO_BUFFERID>,
    slices_per_piece_log2: u32,
    controls: Option<(ManuallyDrop<AllControls>, RIO_BUFFERID)>,
    /// The kernel has none of it.
    all_back: AtomicBool,
}

// SAFETY: what lies in the cells belongs to whoever has the slice of the same number.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    /// # Errors
    /// What the system answered.
    pub fn new(functions: Functions, region: &Arc<Region>, control: bool) -> Result<Self, Error> {
        let stride = region.layout().stride;
        let slices_per_piece_log2 = (PIECE_BYTES / stride).max(1).ilog2();
        let mut registered = Self {
            functions,
            region: Arc::clone(region),
            pieces: Vec::new(),
            slices_per_piece_log2,
            controls: None,
            all_back: AtomicBool::new(true),
        };
        let (base, bytes) = region.extent();
        for begin in (0..bytes).step_by(stride << slices_per_piece_log2) {
            let length = (bytes - begin).min(stride << slices_per_piece_log2);
            // SAFETY: the piece lies in the region, which lives as long as this does.
            let id = unsafe { register(functions, base.as_ptr().add(begin), length) }?;
            registered.pieces.push(id);
        }
        if control {
            let empty = || Controls { total: 0, _aligned: 0, data: Control([0; CONTROL_BYTES]) };
            let all: Box<[_]> = (0..region.count()).map(|_| UnsafeCell::new(empty())).collect();
            let (at, bytes) = (all.as_ptr().cast(), size_of_val(&*all));
            // SAFETY: this memory is freed after it was taken back from the kernel.
            let id = unsafe { register(functions, at, bytes) }?;
            registered.controls = Some((ManuallyDrop::new(all), id));
        }
        Ok(registered)
    }

    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// So many bytes of a slice from there on, headroom included.
    #[inline]
    pub fn part_of(&self, index: u32, from: usize, length: usize) -> RIO_BUF {
        let piece = index >> self.slices_per_piece_log2;
        let within = (index - (piece << self.slices_per_piece_log2)) as usize;
        let stride = self.region.layout().stride;
        debug_assert!(from + length <= stride);
        RIO_BUF {
            BufferId: self.pieces[piece as usize],
            Offset: (within * stride + from) as u32,
            Length: length as u32,
        }
    }

    /// The control data of a slice, and its name for a request.
    #[inline]
    pub fn control_of(&self, index: u32) -> Option<(*mut Controls, RIO_BUF)> {
        let (all, id) = self.controls.as_ref()?;
        let offset = index as usize * size_of::<Controls>();
        let length = size_of::<Controls>() as u32;
        let buffer = RIO_BUF { BufferId: *id, Offset: offset as u32, Length: length };
        Some((all[index as usize].get(), buffer))
    }

    /// Whether the kernel has none of it any more: then it is no longer registered once nobody needs it.
    pub fn set_all_back(&self, all_back: bool) {
        self.all_back.store(all_back, Relaxed);
    }
}

/// # Safety
/// The memory is valid until it is deregistered.
unsafe fn register(
    functions: Functions,
    at: *const u8,
    bytes: usize,
) -> Result<RIO_BUFFERID, Error> {
    let Ok(length) = u32::try_from(bytes) else {
        return Err(Error::option(
            "outstanding",
            "registered memory is more than 4 GiB; ask for less",
        ));
    };
    // SAFETY: the caller's word.
    match unsafe { (functions.register)(at, length) } {
        NONE => {
            let refused = io::Error::from_raw_os_error(last_error());
            Err(Error::io(format!("registering {bytes} bytes (RIORegisterBuffer)"), refused))
        }
        id => Ok(id),
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // What the kernel may still write to stays registered, and allocated.
        if !*self.all_back.get_mut() {
            return;
        }
        let ids = self.pieces.iter().chain(self.controls.as_ref().map(|(_, id)| id));
        for &id in ids {
            // SAFETY: it was registered, and nothing of it is outstanding.
            unsafe { (self.functions.deregister)(id) };
        }
        if let Some((all, _)) = &mut self.controls {
            // SAFETY: it is dropped once, here.
            unsafe { ManuallyDrop::drop(all) };
        }
    }
}
