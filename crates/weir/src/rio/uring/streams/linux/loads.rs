//! What is being sent: it stays here until the kernel has done with it.

use crate::{
    memory::{Posted, Region},
    ring::{Slots, Token},
    rio::{
        Refused,
        streams::{Load, StreamId},
    },
};
use std::{mem, sync::Arc};

/// A load in the kernel's hands.
#[derive(Debug)]
enum Held {
    Slice { posted: Posted, start: u32, end: u32 },
    Bytes { bytes: Vec<u8>, start: usize },
}

/// A send under way.
#[derive(Debug)]
struct Sending {
    connection: StreamId,
    held: Held,
    /// Bytes asked to be sent.
    len: u32,
}

/// Sends under way: one for each connection, and those of which the kernel still reads the bytes.
#[derive(Debug)]
pub(super) struct Loads(Slots<Sending>);

impl Loads {
    pub fn new(class: u8) -> Self {
        Self(Slots::growing(class, 1 << 24))
    }

    /// Takes a load: its token, and where its bytes lie, for the kernel.
    ///
    /// # Errors
    /// Gives it back where it cannot be sent: where its slice is of another region, above all, since it comes
    /// back as one of this.
    pub fn insert(
        &mut self,
        connection: StreamId,
        load: Load,
        region: &Arc<Region>,
    ) -> Result<(Token, *const u8, u32), (Load, Refused)> {
        if let Some(refused) = refused(&load, region) {
            return Err((load, refused));
        }
        // What is longer is sent in parts.
        let len = load.bytes().len().min(1 << 30) as u32;
        // It never moves: a slice lies in its region, a vector's bytes where they are until it grows.
        let at = load.bytes().as_ptr();
        let held = match load {
            Load::Slice { slice, start, end } => Held::Slice { posted: slice.post(), start, end },
            Load::Bytes { bytes, start } => Held::Bytes { bytes, start },
        };
        match self.0.insert(Sending { connection, held, len }) {
            Ok(token) => Ok((token, at, len)),
            // SAFETY: it was posted just above, and the kernel knows nothing of it.
            Err(sending) => Err((unsafe { sending.held.release(region) }, Refused::Full)),
        }
    }

    /// Whose it is, and how many bytes were asked to be sent.
    pub fn get(&self, token: Token) -> Option<(StreamId, u32)> {
        self.0.get(token).map(|sending| (sending.connection, sending.len))
    }

    /// Takes a load back.
    ///
    /// # Safety
    /// This was the last completion of that send, whose slice is of this region.
    pub unsafe fn over(&mut self, token: Token, region: &Arc<Region>) -> Option<Load> {
        // SAFETY: the caller vouches for the kernel; it was posted when it came here.
        self.0.remove(token).map(|sending| unsafe { sending.held.release(region) })
    }

    /// How many slices the kernel holds.
    pub fn slices(&self) -> u32 {
        self.0.iter().filter(|(_, sending)| matches!(sending.held, Held::Slice { .. })).count()
            as u32
    }

    /// How many loads the kernel holds.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Leaves what the kernel may still read where it is, for ever.
    pub fn leak(&mut self) {
        mem::forget(mem::replace(&mut self.0, Slots::growing(0, 0)));
    }
}

impl Held {
    /// # Safety
    /// It was posted from this region, and the kernel is done with it.
    unsafe fn release(self, region: &Arc<Region>) -> Load {
        match self {
            Held::Slice { posted, start, end } => {
                // SAFETY: as the caller says.
                let slice = unsafe { posted.reclaim(region) };
                Load::Slice { slice, start, end }
            }
            Held::Bytes { bytes, start } => Load::Bytes { bytes, start },
        }
    }
}

/// Why a load cannot be sent, if it cannot.
#[inline]
fn refused(load: &Load, region: &Arc<Region>) -> Option<Refused> {
    let bytes = match load {
        Load::Slice { slice, .. } if !Arc::ptr_eq(slice.region(), region) => {
            return Some(Refused::OtherRegion);
        }
        Load::Slice { slice, start, end } => slice.payload().get(*start as usize..*end as usize),
        Load::Bytes { bytes, start } => bytes.get(*start..),
    };
    match bytes {
        None => Some(Refused::OutOfBounds),
        Some([]) => Some(Refused::Empty),
        Some(_) => None,
    }
}
