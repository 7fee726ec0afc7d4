//! The texts of a cow that has no greeting.

use kubewright::random::Random;

const FORTUNES: [&str; 14] = [
    "You will find greener grass on this side of the fence, once you water it.",
    "Somebody near you is about to say something kind. It may as well be you.",
    "A small commit today keeps the long evening away.",
    "The pod you are waiting for is already ready. Look again.",
    "Patience: even the milk took all morning.",
    "Today is a good day to delete code.",
    "He who names things well need not explain them.",
    "Your next idea will come while you are washing up.",
    "Do not count your replicas before they are scheduled.",
    "An old friend is thinking of you. Write first.",
    "What you look for is in the other log.",
    "Chew on it twice. It worked for me.",
    "The moon is no harder to jump over than most meetings.",
    "Whatever it is, it is eventually consistent.",
];

/// Returns a random fortune.
pub(super) fn fortune(random: &Random) -> &'static str {
    let count = FORTUNES.len() as u64;
    FORTUNES[usize::try_from(random.u64() % count).unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_fortune_occurs_and_a_seed_repeats_them() {
        let random = Random::seeded(1);
        let reported: BTreeSet<_> = (0..1000).map(|_| fortune(&random)).collect();
        assert_eq!(reported.len(), FORTUNES.len());
        assert_eq!(fortune(&Random::seeded(5)), fortune(&Random::seeded(5)));
    }
}
