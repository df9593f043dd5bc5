//! From what is asked of a comparison of UDP to its loads, and how often they run.

pub mod asked;
pub mod budget;
pub mod held;
pub mod line_rate;
pub mod load;
pub mod work;

pub use asked::{Asked, SWEPT_OPTIONS, Sweep, SweptOption};
pub use held::Held;
pub use line_rate::LinkShare;
pub use load::{Goal, Load, Rate, Replies, ReplyOffload, Shown, Takes};
pub use work::Work;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::course::Course;
    use crate::experiment::plan::{Depth, Settings};
    use crate::udp::results::Udp;

    #[test]
    fn the_whole_budget_is_shared_out() {
        let base = Load::saturation(64);
        for depth in [Depth::Quick, Depth::Standard, Depth::Full] {
            let loads = Asked::new(depth, base).loads();
            let loads: Vec<(Load, usize)> = loads.into_iter().map(|load| (load, 10)).collect();
            let shares = Udp::shares(&Settings::new(depth), &loads, 100.0);
            assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-9);
            assert!(shares.iter().all(|share| *share > 0.0));
        }
        let standard = Settings::new(Depth::Standard);
        let paced = base.at(Rate::PerSecond(1));
        assert_eq!(Udp::shares(&standard, &[(paced, 3)], 10.0), vec![10.0]);
        assert_eq!(Udp::shares(&standard, &[(base, 3), (paced, 3)], 10.0), vec![5.0, 5.0]);
        assert_eq!(Udp::shares(&standard, &[(base, 3), (paced, 1)], 8.0), vec![6.0, 2.0]);
    }
}
