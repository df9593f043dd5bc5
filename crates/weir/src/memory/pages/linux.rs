//! Pages from mmap(2): reserved huge pages where asked and available, else ordinary pages
//! with advice to use huge ones; bound to a NUMA node by mbind(2) where asked; and all of them committed by mlock(2)
//! at the start, or by MADV_POPULATE_WRITE (Linux 5.14) where they may not be locked.

use super::{
    super::{Committed, NumaNode, Obtained, PageKind, RegionOptions},
    committed, touch,
};
use crate::machine;
use nix::{
    errno::Errno,
    sys::{
        mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mlock, mmap_anonymous, munlock, munmap},
        resource::{Resource, getrlimit},
    },
    unistd::{SysconfVar, sysconf},
};
use std::{io, num::NonZeroUsize, ptr::NonNull};

pub struct Pages {
    base: NonNull<u8>,
    obtained: Obtained,
}

/// Size of the huge pages asked for (x86-64, and arm64 with 4 KiB pages).
const HUGE_PAGE_BYTES: usize = 2 << 20;

impl Pages {
    pub fn map(bytes: usize, align: usize, options: RegionOptions) -> io::Result<Self> {
        let page_bytes = sysconf(SysconfVar::PAGE_SIZE)?.expect("a page has a size") as usize;
        assert!(align <= page_bytes, "slices aligned to more than a page are not supported");
        let ordinary = || Self::mmap(bytes, page_bytes, MapFlags::empty());
        let mut pages = match options.pages {
            PageKind::Auto => ordinary()?,
            PageKind::Normal => {
                let pages = ordinary()?;
                // Refused where the kernel has no huge pages: then there is nothing to avoid.
                let _ = pages.advise(MmapAdvise::MADV_NOHUGEPAGE);
                pages
            }
            PageKind::Huge => match Self::mmap(bytes, HUGE_PAGE_BYTES, MapFlags::MAP_HUGETLB) {
                Ok(pages) => pages,
                Err(_) => {
                    let mut pages = ordinary()?;
                    pages.obtained.huge_pages_advised =
                        pages.advise(MmapAdvise::MADV_HUGEPAGE).is_ok();
                    pages
                }
            },
        };
        if let NumaNode::Node(node) = options.numa_node {
            pages.bind(node)?;
            // Huge pages were reserved on any node: one that this node has not would be missed at the
            // first touch, by a signal that ends the process (hugetlbpage.rst of the kernel).
            if pages.obtained.page_bytes == HUGE_PAGE_BYTES
                && let Err(cause) = pages.advise(MmapAdvise::MADV_POPULATE_WRITE)
            {
                let cause = io::Error::from(cause);
                return Err(io::Error::new(
                    cause.kind(),
                    format!(
                        "NUMA node {node} has not enough huge pages free ({cause}): reserve more \
                         there, or ask for another node or for ordinary pages"
                    ),
                ));
            }
        }
        // Reserved huge pages are the process's already. (The kernel does not refuse to commit more than a control group may
        // have: it ends a process of it.)
        let reserved = pages.obtained.page_bytes == HUGE_PAGE_BYTES;
        let left_bytes = || if reserved { None } else { machine::memory_left_bytes() };
        let bytes = pages.obtained.bytes;
        pages.obtained.commit =
            committed(options.commit, bytes, left_bytes, || pages.commit(page_bytes));
        Ok(pages)
    }

    /// Has every page there, and locks them where that is permitted. Where there is too little memory nothing is done: a
    /// server that could start with pages that come as they are touched still does.
    fn commit(&self, page_bytes: usize) -> Committed {
        // SAFETY: the range is our own mapping, and locking it changes no contents.
        if unsafe { mlock(self.base.cast(), self.obtained.bytes) }.is_ok() {
            return Committed::Locked;
        }
        // A call that failed half way leaves pages that are locked once they come.
        // SAFETY: as above.
        let _ = unsafe { munlock(self.base.cast(), self.obtained.bytes) };
        match self.advise(MmapAdvise::MADV_POPULATE_WRITE) {
            Ok(()) => {}
            // Before Linux 5.14.
            // SAFETY: our own mapping, which the kernel has filled with zeroes and nobody else knows yet.
            Err(Errno::EINVAL) => unsafe { touch(self.base, self.obtained.bytes, page_bytes) },
            Err(_) => return Committed::TooLittle { left_bytes: None },
        }
        let limit_bytes = getrlimit(Resource::RLIMIT_MEMLOCK).ok().map(|(soft, _)| soft);
        Committed::Unlocked { limit_bytes }
    }

    fn mmap(bytes: usize, page_bytes: usize, flags: MapFlags) -> io::Result<Self> {
        let bytes = bytes.checked_next_multiple_of(page_bytes).ok_or(Errno::ENOMEM)?;
        let length = NonZeroUsize::new(bytes).ok_or(Errno::EINVAL)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | flags;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe { mmap_anonymous(None, length, access, flags) }?.cast();
        let commit = Committed::Touched;
        let obtained =
            Obtained { bytes, page_bytes, huge_pages_advised: false, numa_node: None, commit };
        Ok(Self { base, obtained })
    }

    fn advise(&self, advice: MmapAdvise) -> nix::Result<()> {
        // SAFETY: the range is our own mapping; the advice changes no contents.
        unsafe { madvise(self.base.cast(), self.obtained.bytes, advice) }
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
        let _ = unsafe { munmap(self.base.cast(), self.obtained.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::Commit, *};

    fn map(pages: PageKind, numa_node: NumaNode) -> io::Result<Pages> {
        Pages::map(
            3 * HUGE_PAGE_BYTES,
            64,
            RegionOptions { pages, numa_node, ..RegionOptions::default() },
        )
    }

    /// The flags of a mapping, as /proc/self/smaps tells them: `hg` advised to be huge, `nh`
    /// advised not to be, `lo` locked.
    fn flags(pages: &Pages) -> Vec<String> {
        told(pages, "VmFlags:").split_whitespace().map(str::to_owned).collect()
    }

    /// What /proc/self/smaps says of a mapping.
    fn told(pages: &Pages, name: &str) -> String {
        let address = pages.base().as_ptr() as usize;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split_whitespace().next().and_then(|word| word.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16).ok();
            if let Some((Some(from), Some(to))) = range.map(|(from, to)| (number(from), number(to)))
            {
                inside = (from..to).contains(&address);
            }
            if let (true, Some(told)) = (inside, line.strip_prefix(name)) {
                return told.trim().to_owned();
            }
        }
        panic!("no mapping at {address:x}");
    }

    #[test]
    fn the_kind_of_pages_is_what_was_asked_for() {
        let has = |pages: &Pages, flag: &str| flags(pages).iter().any(|one| one == flag);
        let auto = map(PageKind::Auto, NumaNode::Auto).unwrap();
        assert!(!has(&auto, "hg") && !has(&auto, "nh"), "{:?}", flags(&auto));
        let huge = map(PageKind::Huge, NumaNode::Auto).unwrap();
        let obtained = huge.obtained();
        assert_eq!(obtained.huge_pages_advised, has(&huge, "hg"));
        assert_eq!(obtained.page_bytes == HUGE_PAGE_BYTES, has(&huge, "ht"));
        let normal = map(PageKind::Normal, NumaNode::Auto).unwrap();
        // Where the kernel can be advised at all.
        assert_eq!(has(&normal, "nh"), auto.advise(MmapAdvise::MADV_NOHUGEPAGE).is_ok());
        assert!(!normal.obtained().huge_pages_advised);
    }

    #[test]
    fn pages_are_there_from_the_start_unless_they_come_as_they_are_touched() {
        let of = |commit| {
            let options = RegionOptions { commit, ..RegionOptions::default() };
            Pages::map(3 * HUGE_PAGE_BYTES, 64, options).unwrap()
        };
        let resident = |pages: &Pages| {
            let kib = told(pages, "Rss:").trim_end_matches(" kB").parse::<usize>().unwrap();
            kib << 10
        };
        // A mapping of its own beside others may be shown as one with them.
        let pages = of(Commit::Locked);
        assert!(pages.obtained().commit.at_start(), "6 MiB are left: {:?}", pages.obtained());
        let obtained = pages.obtained();
        assert!(resident(&pages) >= obtained.bytes, "{obtained:?}");
        let is_locked = flags(&pages).iter().any(|flag| flag == "lo");
        assert_eq!(obtained.commit == Committed::Locked, is_locked, "{obtained:?}");
        let touched = of(Commit::Touched);
        assert_eq!(touched.obtained().commit, Committed::Touched);
        assert!(!flags(&touched).iter().any(|flag| flag == "lo"));
    }

    #[test]
    fn memory_that_is_not_left_is_not_committed() {
        let pages = map(PageKind::Normal, NumaNode::Auto).unwrap();
        let (bytes, page_bytes) = (pages.obtained().bytes, pages.obtained().page_bytes);
        let of =
            |left| committed(Commit::Locked, bytes, || Some(left), || pages.commit(page_bytes));
        let left = 8 * bytes as u64 - 1;
        assert_eq!(of(left), Committed::TooLittle { left_bytes: Some(left) });
        assert!(!flags(&pages).iter().any(|flag| flag == "lo"));
        assert!(of(8 * bytes as u64).at_start());
    }

    #[test]
    fn a_node_is_obtained_or_named_in_the_refusal() {
        match map(PageKind::Auto, NumaNode::Node(0)) {
            Ok(pages) => assert_eq!(pages.obtained().numa_node, Some(0)),
            Err(error) => assert!(error.to_string().contains("node 0"), "{error}"),
        }
        for node in [1023, 1024, u32::MAX] {
            let error = map(PageKind::Auto, NumaNode::Node(node)).err().expect("no such node");
            assert!(error.to_string().contains(&format!("node {node}")), "{error}");
        }
    }
}
