//! A tree of the ranks, by which each hears from few others: what goes up or down takes a time that grows with the logarithm
//! of the ranks.
//!
//! It is the binomial tree on which MPI's own collective calls rest: rank r has its number without the highest bit as parent,
//! so that 0 has 1, 2, 4 and so on as children, and 1 has 3, 5, 9.

/// The rank above this one; none above rank 0.
pub fn parent(rank: usize) -> Option<usize> {
    Some(rank - (1 << rank.checked_ilog2()?))
}

/// The ranks right below, of so many in all, in rising order.
pub fn children(rank: usize, count: usize) -> impl Iterator<Item = usize> {
    let first = rank.checked_ilog2().map_or(0, |bit| bit + 1);
    (first..usize::BITS).map(move |bit| rank + (1 << bit)).take_while(move |child| *child < count)
}

/// This rank and all below it.
pub fn below(rank: usize, count: usize) -> Vec<usize> {
    let mut all = vec![rank];
    let mut next = 0;
    while let Some(rank) = all.get(next) {
        all.extend(children(*rank, count));
        next += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_below_its_parent_once_and_few_steps_from_rank_0() {
        for count in 1..70 {
            let mut all = below(0, count);
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
            for rank in 1..count {
                let parent = parent(rank).unwrap();
                assert!(children(parent, count).any(|child| child == rank), "{rank} of {count}");
                let steps = std::iter::successors(Some(rank), |rank| super::parent(*rank)).count();
                assert!(steps as u32 <= count.ilog2() + 2, "{rank} of {count}");
            }
        }
        assert_eq!(parent(0), None);
        assert_eq!(children(1, 8).collect::<Vec<_>>(), [3, 5]);
    }
}
