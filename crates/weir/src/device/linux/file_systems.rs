//! File systems of which a regular file is only that: bytes that somebody stored, which a read copies and leaves as
//! they are. They are known by the type that statfs(2) gives; what is not in the list is refused unless it is named.
//!
//! Origin: the numbers of linux/magic.h, and of each file system's own source where that has none.

/// Type and name, by what makes a read of a file there harmless.
const ORDINARY: [(u32, &str); 29] = [
    // On disks: a read brings what was written, from a device that the kernel looks after.
    (0xEF53, "ext2, ext3, ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0xF2F5_2010, "f2fs"),
    (0x2FC1_2FC1, "zfs"),
    (0xCA45_1A4E, "bcachefs"),
    (0x3153_464A, "jfs"),
    (0x3434, "nilfs2"),
    (0x5265_4973, "reiserfs"),
    // On flash memory without a disk's controller.
    (0x2405_1905, "ubifs"),
    (0x72B6, "jffs2"),
    // On disks that several machines share.
    (0x7461_636F, "ocfs2"),
    (0x0116_1970, "gfs2"),
    // Shared with other systems and with cameras.
    (0x4D44, "vfat"),
    (0x2011_BAB0, "exfat"),
    (0x7366_746E, "ntfs3"),
    (0x482B, "hfsplus"),
    (0x1501_3346, "udf"),
    // Made once and never written to.
    (0x9660, "iso9660"),
    (0x7371_7368, "squashfs"),
    (0xE0F5_E1E2, "erofs"),
    // In memory, for as long as the machine runs. A memfd is a file of tmpfs.
    (0x0102_1994, "tmpfs"),
    (0x8584_58F6, "ramfs"),
    // A view of files of the others. statfs tells the view only: the layers below may be of any type.
    (0x794C_7630, "overlayfs"),
    (0xF15F, "ecryptfs"),
    // A server's files, which its own rules keep: a read asks it for bytes, and for nothing else.
    (0x6969, "nfs"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb2"),
    (0x00C3_6400, "ceph"),
];

/// Names of some others, for messages: the kernel, or a program behind fuse and 9p, makes up what is read.
const OTHERS: [(u32, &str); 23] = [
    (0x9FA0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x6265_6570, "configfs"),
    (0x0027_E0EB, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6165_676C, "pstore"),
    (0x6E73_6673, "nsfs"),
    (0x4249_4E4D, "binfmt_misc"),
    (0x5049_4446, "pidfs"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x1980_0202, "mqueue"),
    (0xCAFE_4A11, "bpf"),
    (0xF97C_FF8C, "selinuxfs"),
    (0x5A3C_69F0, "apparmorfs"),
    (0xDE5E_81E4, "efivarfs"),
    (0x9584_58F6, "hugetlbfs"),
    (0x5345_434D, "secretmem"),
    (0x6759_6969, "rpc_pipefs"),
    (0x0187, "autofs"),
];

/// What a type of file system is called unless it is an ordinary one.
pub(super) fn not_ordinary(number: u32) -> Option<String> {
    if ORDINARY.iter().any(|(ordinary, _)| *ordinary == number) {
        return None;
    }
    let other = OTHERS.iter().find(|(other, _)| *other == number);
    Some(other.map_or_else(|| format!("type {number:#x}"), |(_, name)| (*name).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_is_ordinary() {
        for ordinary in
            [0xEF53, 0x2405_1905, 0x72B6, 0x7461_636F, 0x0116_1970, 0x482B, 0xF15F, 0x5265_4973]
        {
            assert_eq!(not_ordinary(ordinary), None);
        }
        assert_eq!(not_ordinary(0x6E73_6673).as_deref(), Some("nsfs"));
        assert_eq!(not_ordinary(0x4249_4E4D).as_deref(), Some("binfmt_misc"));
        assert_eq!(not_ordinary(0x1234).as_deref(), Some("type 0x1234"));
        for (number, name) in OTHERS {
            assert_eq!(not_ordinary(number).as_deref(), Some(name), "it is in one list only");
        }
        let mut numbers: Vec<u32> = ORDINARY.iter().chain(&OTHERS).map(|(n, _)| *n).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ORDINARY.len() + OTHERS.len());
    }
}
