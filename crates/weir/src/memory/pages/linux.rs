//! Pages from mmap(2): reserved huge pages where asked and available, else ordinary pages
//! with advice to use huge ones; bound to a NUMA node by mbind(2) where asked.

use super::super::{Obtained, RegionOptions};
use std::{io, ptr::NonNull};

pub struct Pages {
    base: NonNull<u8>,
    obtained: Obtained,
}

/// Size of the huge pages asked for (x86-64, and arm64 with 4 KiB pages).
const HUGE_PAGE_BYTES: usize = 2 << 20;

impl Pages {
    pub fn map(bytes: usize, align: usize, options: RegionOptions) -> io::Result<Self> {
        // SAFETY: sysconf reads a constant of the system.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        assert!(align <= page_bytes, "slices aligned to more than a page are not supported");
        let mut pages = options
            .huge_pages
            .then(|| Self::mmap(bytes, HUGE_PAGE_BYTES, libc::MAP_HUGETLB).ok())
            .flatten();
        if pages.is_none() {
            let mut ordinary = Self::mmap(bytes, page_bytes, 0)?;
            if options.huge_pages {
                ordinary.obtained.huge_pages_advised = ordinary.advise_huge_pages();
            }
            pages = Some(ordinary);
        }
        let mut pages = pages.expect("ordinary pages were mapped");
        if let Some(node) = options.numa_node {
            pages.bind(node)?;
        }
        Ok(pages)
    }

    fn mmap(bytes: usize, page_bytes: usize, flags: libc::c_int) -> io::Result<Self> {
        let bytes = bytes
            .checked_next_multiple_of(page_bytes)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("mmap does not map at address 0");
        let obtained = Obtained { bytes, page_bytes, huge_pages_advised: false, numa_node: None };
        Ok(Self { base, obtained })
    }

    fn advise_huge_pages(&self) -> bool {
        // SAFETY: the range is our own mapping; the advice changes no contents.
        unsafe {
            libc::madvise(self.base.as_ptr().cast(), self.obtained.bytes, libc::MADV_HUGEPAGE) == 0
        }
    }

    fn bind(&mut self, node: u32) -> io::Result<()> {
        const MPOL_BIND: libc::c_long = 2;
        let mut mask = [0u64; 16];
        let (word, bit) = (node as usize / 64, node % 64);
        let Some(place) = mask.get_mut(word) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("there is no NUMA node {node}"),
            ));
        };
        *place = 1 << bit;
        // SAFETY: the range is our own mapping and the mask lives through the call. mbind has
        // no wrapper in libc. The kernel reads maxnode - 1 bits.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.obtained.bytes,
                MPOL_BIND,
                mask.as_ptr(),
                mask.len() * 64 + 1,
                0,
            )
        };
        if result != 0 {
            let cause = io::Error::last_os_error();
            return Err(io::Error::new(
                cause.kind(),
                format!("mbind to NUMA node {node}: {cause}"),
            ));
        }
        self.obtained.numa_node = Some(node);
        Ok(())
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub fn obtained(&self) -> Obtained {
        self.obtained
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `mmap` with this length; every slice has been returned, since each
        // one outside the pool would keep the region, and with it these pages, alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.obtained.bytes) };
    }
}
