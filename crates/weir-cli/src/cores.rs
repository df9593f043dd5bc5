//! A list of cores, as people write it: `0`, `2,3`, `4-7`.

use std::str::FromStr;

/// The cores of a list, in rising order, each once; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores(pub Vec<usize>);

/// No machine has more cores than the largest kernel can manage.
const MOST_CORES: usize = 8192;

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no list of cores; right is 0 or 2,3 or 4-7");
        let number = |part: &str| {
            part.trim().parse::<usize>().ok().filter(|core| *core < MOST_CORES).ok_or_else(wrong)
        };
        let mut cores = vec![];
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            cores.extend(first..=last);
        }
        cores.sort_unstable();
        cores.dedup();
        Ok(Self(cores))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        assert_eq!("0".parse(), Ok(Cores(vec![0])));
        assert_eq!("4-6,1,5".parse(), Ok(Cores(vec![1, 4, 5, 6])));
        for wrong in ["", "a", "3-1", "1,", "0-99999999", "-1"] {
            let error = wrong.parse::<Cores>().unwrap_err();
            assert!(error.contains("list of cores"), "{wrong:?}: {error}");
        }
    }
}
