//! Questions to the kernel about routes, neighbours and devices, in the calling thread's network.
//!
//! Origin: netlink(7), rtnetlink(7); Documentation/netlink/specs/netdev.yaml.

use socket2::{Socket, Type};
use std::io::{self, Read as _};

/// `struct nlmsghdr`: length, type, flags, sequence number, port.
const HEADER: usize = 16;
const REQUEST: u16 = libc::NLM_F_REQUEST as u16;

/// A protocol of netlink, and the number of the next question.
pub struct Netlink(Socket, u32);

/// An answer: what comes after its header.
pub struct Answer(Vec<u8>);

impl Netlink {
    /// # Errors
    /// What the kernel answered.
    pub fn open(protocol: libc::c_int) -> io::Result<Self> {
        Ok(Self(Socket::new(libc::AF_NETLINK.into(), Type::RAW, Some(protocol.into()))?, 1))
    }

    /// Asks for one thing: `fixed` is the structure that the message begins with, a multiple of four
    /// bytes long.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn ask(
        &mut self,
        kind: u16,
        fixed: &[u8],
        attributes: &[(u16, &[u8])],
    ) -> io::Result<Answer> {
        let message = message(kind, self.1, fixed, attributes);
        self.1 += 1;
        self.0.send(&message)?;
        let mut answer = vec![0u8; 1 << 15];
        let received = self.0.read(&mut answer)?;
        answer.truncate(received);
        read(answer)
    }
}

/// A message with its attributes, each padded to four bytes.
fn message(kind: u16, sequence: u32, fixed: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut message = vec![0; 4];
    message.extend(kind.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend([0; 4]); // to the kernel
    message.extend(fixed);
    for (kind, value) in attributes {
        message.extend((4 + value.len() as u16).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(*value);
        message.resize(message.len().next_multiple_of(4), 0);
    }
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message
}

/// Takes an answer, or the error it brings.
fn read(mut answer: Vec<u8>) -> io::Result<Answer> {
    let broken = || io::Error::other("an answer of netlink that makes no sense");
    let header = answer.get(..HEADER).ok_or_else(broken)?;
    let length = word(header) as usize;
    if !(HEADER..=answer.len()).contains(&length) {
        return Err(broken());
    }
    let kind = i32::from(u16::from_ne_bytes([header[4], header[5]]));
    answer.truncate(length);
    let rest = answer.split_off(HEADER);
    if kind == libc::NLMSG_ERROR {
        let number = rest.get(..4).map(|bytes| word(bytes) as i32).ok_or_else(broken)?;
        return Err(io::Error::from_raw_os_error(-number));
    }
    Ok(Answer(rest))
}

/// The first four bytes as a number of this machine.
pub fn word(bytes: &[u8]) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[..4]);
    u32::from_ne_bytes(four)
}

impl Answer {
    /// The structure it begins with.
    pub fn fixed(&self, bytes: usize) -> Option<&[u8]> {
        self.0.get(..bytes)
    }

    /// The value of an attribute behind a structure of so many bytes.
    pub fn attribute(&self, fixed: usize, wanted: u16) -> Option<&[u8]> {
        /// What the upper bits of a kind say is no part of it.
        const KIND: u16 = 0x3fff;
        let mut rest = self.0.get(fixed..)?;
        while let [a, b, c, d, ..] = *rest {
            let length = usize::from(u16::from_ne_bytes([a, b]));
            let value = rest.get(4..length)?;
            if u16::from_ne_bytes([c, d]) & KIND == wanted {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_can_be_read_as_an_answer() {
        let message = message(24, 7, &[1, 2, 3, 4], &[(5, b"abcde"), (0x8006, &[9]), (7, &[])]);
        assert_eq!(message.len() % 4, 0);
        let answer = read(message).unwrap();
        assert_eq!(answer.fixed(4), Some(&[1, 2, 3, 4][..]));
        assert_eq!(answer.attribute(4, 5), Some(&b"abcde"[..]));
        assert_eq!(answer.attribute(4, 6), Some(&[9][..]));
        assert_eq!(answer.attribute(4, 7), Some(&[][..]));
        assert_eq!(answer.attribute(4, 8), None);
    }

    #[test]
    fn errors_and_rubbish_are_no_answers() {
        let refused = message(libc::NLMSG_ERROR as u16, 1, &(-2i32).to_ne_bytes(), &[]);
        assert_eq!(read(refused).err().unwrap().raw_os_error(), Some(2));
        for rubbish in [vec![], vec![0; 15], vec![0; 16], vec![255; 64]] {
            assert!(read(rubbish).is_err());
        }
        let mut cut = message(24, 7, &[], &[(5, b"abcde")]);
        cut[HEADER] = 200; // longer than the message
        assert_eq!(read(cut).unwrap().attribute(0, 5), None);
    }
}
