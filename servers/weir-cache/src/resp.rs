//! The protocol: commands are taken apart where they were received, and replies are written into one buffer.
//!
//! A command is an array of bulk strings (RESP), or a line of words (an inline command, as typed into telnet). What has
//! come is looked at once, however it was cut, no command costs an allocation, and nothing is nested. A parser for the
//! whole protocol takes ten times as long for that: the README has what was tried.

/// Most arguments of a command: as many as Redis takes.
const MOST_ARGUMENTS: usize = 1024 * 1024;

/// The most that the bytes of a command may be limited to.
pub const MOST_BYTES: usize = 1024 * 1024 * 1024;

/// Longest argument in bytes: as in Redis.
const LONGEST_ARGUMENT: usize = 512 * 1024 * 1024;

/// Longest line of an inline command, and of a length, in bytes: as in Redis.
const LONGEST_LINE: usize = 64 * 1024;

/// A command that cannot be one. The connection is closed, as nothing behind it can be told apart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The number of arguments is none.
    #[error("Protocol error: invalid multibulk length")]
    Count,
    /// The length of an argument is none.
    #[error("Protocol error: invalid bulk length")]
    Length,
    /// An argument is no bulk string.
    #[error("Protocol error: expected '$', got '{}'", .0.escape_ascii())]
    NoBulk(u8),
    /// A line does not end.
    #[error("Protocol error: too big inline request")]
    Line,
    /// More bytes than a command may have.
    #[error(
        "Protocol error: a command is longer than {0} bytes, the most that it may have (--command-bytes)"
    )]
    TooLong(usize),
}

/// Takes commands apart, and remembers how far it came where the end of one is missing.
#[derive(Debug, Default)]
pub struct Parser {
    /// Where the arguments stand, from the beginning of the command.
    arguments: Vec<(u32, u32)>,
    /// Arguments that are still to come, once it is known.
    missing: Option<usize>,
    /// Bytes of the command that were looked at.
    at: usize,
}

/// Arguments kept room for between two commands.
const KEPT: usize = 64;

impl Parser {
    /// Looks for the end of the command with which `input` begins: the same command, with more behind it, until it is
    /// found. Gives how many bytes it has. One of no arguments is none, and asks for nothing.
    ///
    /// # Errors
    /// [`Malformed`], also where it has more than `most` bytes, at most [`MOST_BYTES`].
    pub fn next(&mut self, input: &[u8], most: usize) -> Result<Option<usize>, Malformed> {
        debug_assert!(most <= MOST_BYTES, "places are in 4 bytes");
        let found = match input.first() {
            None => return Ok(None),
            Some(b'*') => self.array(input, most)?,
            Some(_) => self.inline(input)?,
        };
        match found {
            Some(bytes) if bytes <= most => Ok(Some(bytes)),
            None if input.len() <= most => Ok(None),
            _ => Err(Malformed::TooLong(most)),
        }
    }

    /// The arguments of the command that was found at the beginning of `input`.
    pub fn arguments<'a>(&'a self, input: &'a [u8]) -> Arguments<'a> {
        Arguments { input, places: &self.arguments }
    }

    /// The next command begins.
    pub fn begin(&mut self) {
        self.arguments.clear();
        self.arguments.shrink_to(KEPT);
        (self.missing, self.at) = (None, 0);
    }

    fn array(&mut self, input: &[u8], most: usize) -> Result<Option<usize>, Malformed> {
        let missing = match self.missing {
            Some(missing) => missing,
            None => {
                let Some((line, behind)) = line(input, 1)? else { return Ok(None) };
                let count = integer(line).ok_or(Malformed::Count)?;
                if count > MOST_ARGUMENTS as i64 {
                    return Err(Malformed::Count);
                }
                self.at = behind;
                count.max(0) as usize
            }
        };
        for done in 0..missing {
            self.missing = Some(missing - done);
            let rest = &input[self.at..];
            match rest.first() {
                Some(b'$') => {}
                Some(other) => return Err(Malformed::NoBulk(*other)),
                None => return Ok(None),
            }
            let Some((bytes, behind)) = length(rest)? else { return Ok(None) };
            let end = behind + bytes + 2;
            // It is not waited for.
            if self.at + end > most {
                return Err(Malformed::TooLong(most));
            }
            if rest.len() < end {
                return Ok(None);
            }
            let from = self.at + behind;
            self.arguments.push((from as u32, (from + bytes) as u32));
            self.at += end;
        }
        Ok(Some(self.at))
    }

    /// Words with spaces between them.
    fn inline(&mut self, input: &[u8]) -> Result<Option<usize>, Malformed> {
        let Some(end) = find(input, b'\n', self.at) else {
            self.at = input.len();
            return if input.len() > LONGEST_LINE { Err(Malformed::Line) } else { Ok(None) };
        };
        let words = input[..end].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        self.arguments.extend(words.map(|word| {
            let from = word.as_ptr().addr() - input.as_ptr().addr();
            (from as u32, (from + word.len()) as u32)
        }));
        Ok(Some(end + 1))
    }
}

/// The length of a bulk string, and where the string begins.
#[inline]
fn length(input: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let mut length = 0;
    for (at, byte) in input.iter().enumerate().skip(1) {
        match byte {
            b'0'..=b'9' if length <= LONGEST_ARGUMENT && at < 20 => {
                length = 10 * length + usize::from(byte - b'0');
            }
            b'\r' if at > 1 && length <= LONGEST_ARGUMENT => {
                // Its line feed may be still to come.
                return Ok((at + 1 < input.len()).then_some((length, at + 2)));
            }
            _ => return Err(Malformed::Length),
        }
    }
    Ok(None)
}

/// What stands between here and the end of the line, and where the next one begins.
fn line(input: &[u8], from: usize) -> Result<Option<(&[u8], usize)>, Malformed> {
    let Some(end) = find(input, b'\r', from) else {
        return if input.len() > LONGEST_LINE { Err(Malformed::Line) } else { Ok(None) };
    };
    // Its line feed may be still to come.
    Ok((end + 1 < input.len()).then(|| (&input[from..end], end + 2)))
}

/// A byte among the next ones, no more of which are looked at than a line may have.
fn find(input: &[u8], byte: u8, from: usize) -> Option<usize> {
    let until = input.len().min(from + LONGEST_LINE);
    input[from..until].iter().position(|it| *it == byte).map(|at| from + at)
}

/// The arguments of a command, its name first.
#[derive(Debug, Clone, Copy)]
pub struct Arguments<'a> {
    input: &'a [u8],
    places: &'a [(u32, u32)],
}

impl<'a> Arguments<'a> {
    /// How many.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// One of them.
    pub fn get(&self, index: usize) -> &'a [u8] {
        let (from, to) = self.places[index];
        &self.input[from as usize..to as usize]
    }

    /// All behind the first `skip`.
    pub fn iter_from(
        self,
        skip: usize,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator {
        (skip..self.len()).map(move |index| self.get(index))
    }
}

/// A whole number as Redis takes it: no sign of plus, no zeros before it, nothing around it.
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        b"0" if digits.len() == text.len() => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Writes replies.
#[derive(Debug)]
pub struct Replies<'a> {
    /// What was written.
    pub out: &'a mut Vec<u8>,
    /// In the third version of the protocol.
    pub is_resp3: bool,
    /// Most bytes that `out` may have, what stood there before included.
    pub most: usize,
    /// There would have been more.
    pub overflowed: bool,
}

impl<'a> Replies<'a> {
    /// Without a limit.
    pub fn unlimited(out: &'a mut Vec<u8>, is_resp3: bool) -> Self {
        Self { out, is_resp3, most: usize::MAX, overflowed: false }
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.out.len() + bytes.len() > self.most {
            self.overflowed = true;
            return;
        }
        self.out.extend_from_slice(bytes);
    }

    fn header(&mut self, kind: u8, number: i64) {
        self.out.push(kind);
        self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// A word, which has no end of a line in it.
    pub fn simple(&mut self, text: &str) {
        self.put(b"+");
        self.put(text.as_bytes());
        self.put(b"\r\n");
    }

    /// What is wrong.
    pub fn error(&mut self, text: &str) {
        self.put(b"-");
        // It may quote what a client sent.
        self.out.extend(
            text.bytes().map(|byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }),
        );
        self.put(b"\r\n");
    }

    /// A number.
    pub fn integer(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// Bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len() as i64);
        self.put(bytes);
        self.put(b"\r\n");
    }

    /// Nothing.
    pub fn null(&mut self) {
        self.put(if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// The beginning of so many replies that belong together.
    pub fn array(&mut self, count: usize) {
        self.header(b'*', count as i64);
    }

    /// The beginning of so many pairs.
    pub fn map(&mut self, count: usize) {
        match self.is_resp3 {
            true => self.header(b'%', count as i64),
            false => self.array(2 * count),
        }
    }

    /// One of them.
    pub fn pair(&mut self, name: &str, value: &str) {
        self.bulk(name.as_bytes());
        self.bulk(value.as_bytes());
    }

    /// The beginning of so many replies that nobody asked for.
    pub fn push(&mut self, count: usize) {
        self.header(if self.is_resp3 { b'>' } else { b'*' }, count as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is found in `input` that comes in pieces cut at these places.
    fn commands(
        input: &[u8],
        cuts: &[usize],
        most: usize,
    ) -> (Vec<Vec<Vec<u8>>>, Option<Malformed>) {
        let (mut parser, mut found, mut begin) = (Parser::default(), Vec::new(), 0);
        let mut ends: Vec<_> = cuts.iter().map(|cut| cut % (input.len() + 1)).collect();
        ends.push(input.len());
        ends.sort_unstable();
        for end in ends {
            loop {
                match parser.next(&input[begin..end], most) {
                    Ok(Some(bytes)) => {
                        let all = parser.arguments(&input[begin..end]).iter_from(0);
                        found.push(all.map(<[u8]>::to_vec).collect());
                        parser.begin();
                        begin += bytes;
                    }
                    Ok(None) => break,
                    Err(why) => return (found, Some(why)),
                }
            }
        }
        (found, None)
    }

    fn wire(command: &[Vec<u8>]) -> Vec<u8> {
        let mut wire = format!("*{}\r\n", command.len()).into_bytes();
        for argument in command {
            wire.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            wire.extend_from_slice(argument);
            wire.extend_from_slice(b"\r\n");
        }
        wire
    }

    proptest! {
        #[test]
        fn commands_are_found_however_they_are_cut(
            sent in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 0..6),
            cuts in prop::collection::vec(any::<usize>(), 0..12),
        ) {
            let input: Vec<u8> = sent.iter().flat_map(|command| wire(command)).collect();
            prop_assert_eq!(commands(&input, &cuts, 1 << 20), (sent, None));
        }

        #[test]
        fn whatever_comes_is_taken_apart_alike_in_one_piece_and_in_several(
            pieces in prop::collection::vec(prop_oneof![
                Just(b"*2\r\n".to_vec()), Just(b"*1\r\n$4\r\nPING\r\n".to_vec()), Just(b"$3\r\nabc\r\n".to_vec()),
                Just(b"$-1\r\n".to_vec()), Just(b"*-1\r\n".to_vec()), Just(b"$99999999999999999999\r\n".to_vec()),
                Just(b"PING\r\n".to_vec()), Just(b"\r\n".to_vec()), Just(b"*1\r\n*1\r\n".to_vec()), Just(b"$+3\r\n".to_vec()),
                prop::collection::vec(any::<u8>(), 0..10),
            ], 0..12),
            cuts in prop::collection::vec(any::<usize>(), 0..12),
        ) {
            let input = pieces.concat();
            let whole = commands(&input, &[], 1 << 20);
            prop_assert_eq!(commands(&input, &cuts, 1 << 20), whole);
        }

        #[test]
        fn an_integer_is_what_redis_takes(number in any::<i64>(), text in "[-+ 0-9]{0,4}") {
            prop_assert_eq!(integer(number.to_string().as_bytes()), Some(number));
            let exact = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
            prop_assert_eq!(integer(text.as_bytes()), exact);
        }
    }

    #[test]
    fn what_is_malformed_is_refused_as_soon_as_it_shows() {
        for (input, why) in [
            (&b"*x\r\n"[..], Malformed::Count),
            (b"*1048577\r\n", Malformed::Count),
            (b"*1\r\n:", Malformed::NoBulk(b':')),
            (b"*1\r\n*1\r\n", Malformed::NoBulk(b'*')),
            (b"*1\r\n$-1\r\n", Malformed::Length),
            (b"*1\r\n$x\r\n", Malformed::Length),
            (b"*1\r\n$18446744073709551616\r\n", Malformed::Length),
            (&[b'*'; LONGEST_LINE + 2], Malformed::Line),
            (&[b'a'; LONGEST_LINE + 2], Malformed::Line),
            (b"*1\r\n$1000\r\n", Malformed::TooLong(1010)),
            (b"*1\r\n$1000\r\n0123456789", Malformed::TooLong(20)),
            (b"*1\r\n$9\r\n012345678\r\n", Malformed::TooLong(18)),
        ] {
            let most = if let Malformed::TooLong(most) = why { most } else { 1 << 20 };
            assert_eq!(Parser::default().next(input, most), Err(why), "{}", input.escape_ascii());
        }
    }
}
