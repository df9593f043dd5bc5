//! Which cores the server and each generator have, where several ranks may share a host.

/// Most cores that a server is given unless told otherwise.
const MOST_SERVER_CORES: usize = 8;

/// A rank, as far as its cores depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// What tells its host from others.
    pub host: String,
    /// Whether it serves.
    pub serves: bool,
    /// The cores that it may use.
    pub allowed: Vec<usize>,
}

/// The cores of each rank, of which a generator has so many threads. Ranks of one host that were bound to different cores
/// keep them; others share what they may use, as on one machine: the last cores are the generators', the server has the
/// others. Where there are too few, generators share some, and last of all with the server.
pub fn share_out(places: &[Place], threads: usize) -> Vec<Vec<usize>> {
    let threads = threads.max(1);
    places.iter().enumerate().map(|(rank, place)| of_rank(places, rank, place, threads)).collect()
}

fn of_rank(places: &[Place], rank: usize, place: &Place, threads: usize) -> Vec<usize> {
    let overlaps = |other: &Place| other.allowed.iter().any(|core| place.allowed.contains(core));
    let together = |(at, other): &(usize, &Place)| {
        *at == rank || (other.host == place.host && overlaps(other))
    };
    let group: Vec<(usize, &Place)> = places.iter().enumerate().filter(together).collect();
    let is_server_here = group.iter().any(|(_, other)| other.serves);
    let generators: Vec<usize> =
        group.iter().filter(|(_, other)| !other.serves).map(|(at, _)| *at).collect();
    let mut all = place.allowed.clone();
    all.sort_unstable();
    // One is left to a server.
    let spare = all.len().saturating_sub(usize::from(is_server_here)).max(1);
    let taken = (generators.len() * threads).min(spare);
    let of_generators: Vec<usize> = all.iter().rev().take(taken).copied().collect();
    match generators.iter().position(|at| *at == rank) {
        Some(number) => {
            let cores = of_generators.iter().cycle().skip(number * threads);
            let mut cores: Vec<usize> = cores.take(threads).copied().collect();
            let mut seen = vec![];
            cores.retain(|core| {
                !seen.contains(core) && {
                    seen.push(*core);
                    true
                }
            });
            cores
        }
        None => {
            let others = all.iter().filter(|core| !of_generators.contains(core));
            let own: Vec<usize> = others.take(MOST_SERVER_CORES).copied().collect();
            if own.is_empty() { of_generators } else { own }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str, serves: bool, allowed: &[usize]) -> Place {
        Place { host: host.into(), serves, allowed: allowed.to_vec() }
    }

    #[test]
    fn who_has_a_host_of_its_own_has_its_cores() {
        let places = [
            place("a", false, &[0, 1, 2, 3]),
            place("b", true, &[0, 1, 2, 3]),
            place("c", false, &[4, 5]),
        ];
        assert_eq!(share_out(&places, 1), [vec![3], vec![0, 1, 2, 3], vec![5]]);
        assert_eq!(share_out(&places, 2), [vec![3, 2], vec![0, 1, 2, 3], vec![5, 4]]);
        assert_eq!(share_out(&places, 3)[2], [5, 4], "no more than there are");
    }

    #[test]
    fn on_one_host_it_is_as_without_ranks() {
        let two = [place("a", false, &[0, 1]), place("a", true, &[0, 1])];
        assert_eq!(share_out(&two, 1), [vec![1], vec![0]]);
        let crowded = vec![place("a", false, &[0, 1]); 3];
        let crowded: Vec<Place> = crowded.into_iter().chain([place("a", true, &[0, 1])]).collect();
        assert_eq!(share_out(&crowded, 1), [vec![1], vec![1], vec![1], vec![0]]);
        let one_core = [place("a", false, &[0]), place("a", true, &[0])];
        assert_eq!(share_out(&one_core, 1), [vec![0], vec![0]]);
    }

    #[test]
    fn ranks_that_were_bound_keep_their_cores() {
        let bound = [place("a", false, &[0]), place("a", true, &[1])];
        assert_eq!(share_out(&bound, 1), [vec![0], vec![1]]);
    }
}
