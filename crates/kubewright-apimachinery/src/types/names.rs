//! The fields of a struct by their names: a hash table without allocations, since each field of each object is looked
//! up several times in a request.

/// The indices of fields, by a hash of their names.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Each index is at the place of its hash or, if others have it, at the next free one. A power of two in length; at
    /// least half of it is free.
    places: Box<[u16]>,
}

const FREE: u16 = u16::MAX;

impl Names {
    pub(super) fn new<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Self {
        let mut places = vec![FREE; (names.len() * 2).next_power_of_two()];
        let mask = places.len() - 1;
        for (index, name) in (0..FREE).zip(names) {
            let mut place = hash(name) & mask;
            while places[place] != FREE {
                place = (place + 1) & mask;
            }
            places[place] = index;
        }
        Self { places: places.into() }
    }

    /// Returns the indices of the fields that may have a name. Usually there is only that of the field, or none.
    pub(super) fn candidates(&self, name: &str) -> impl Iterator<Item = usize> {
        let mask = self.places.len().wrapping_sub(1);
        let start = hash(name);
        let probes = (0..self.places.len()).map(move |step| self.places[(start + step) & mask]);
        probes.take_while(|index| *index != FREE).map(usize::from)
    }
}

/// Returns a hash of the length and four bytes of a name, which tell the fields of most structs apart.
fn hash(name: &str) -> usize {
    let bytes = name.as_bytes();
    let at = |place: usize| bytes.get(place).map_or(0, |byte| usize::from(*byte));
    let (middle, last) = (bytes.len() / 2, bytes.len().wrapping_sub(1));
    let mixed = bytes.len() + at(0) * 31 + at(middle) * 1_009 + at(last) * 131 + at(middle / 2) * 521;
    mixed ^ (mixed >> 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_found_and_no_other() {
        let names: Vec<String> = (0..200).map(|number| format!("name{number}")).chain([String::new()]).collect();
        let table = Names::new(names.iter().map(String::as_str));
        let find = |name: &str| table.candidates(name).find(|index| names[*index] == name);
        for (index, name) in names.iter().enumerate() {
            assert_eq!(find(name), Some(index));
        }
        assert_eq!(find("name200"), None);
        assert_eq!(Names::default().candidates("a").count(), 0);
        assert_eq!(Names::new([].into_iter()).candidates("a").count(), 0);
    }
}
