//! Places on the earth as numbers whose order keeps neighbours together, and distances.
//!
//! ```text
//!  longitude  -180 .. 180             26 bits   x25 .. x0
//!  latitude   -85.05 .. 85.05         26 bits   y25 .. y0
//!  score      x25 y25 x24 y24 ... x0 y0         52 bits: a double holds them exactly
//! ```
//!
//! Each pair of bits from the front cuts the map into four; so all places in one cell of
//! the map, cut so many times, are one range of scores. The latitudes are those of
//! Mercator's projection (EPSG:3857), as Redis has them; distances are those on a sphere
//! (the haversine formula), as Redis reckons them.

/// Bits of a longitude, and of a latitude.
pub(super) const STEPS: u32 = 26;
pub(super) const LONGITUDE_MAX: f64 = 180.0;
pub(super) const LATITUDE_MAX: f64 = 85.05112878;
/// What the earth's radius is taken for, in metres.
const EARTH_RADIUS: f64 = 6_372_797.560856;

/// A place, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

/// Spreads the bits of a number: each is followed by a zero.
fn spread(bits: u32) -> u64 {
    let mut bits = u64::from(bits);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff_u64),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Every second bit of a number, from the lowest on.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333_u64),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

/// Where in a range that is cut into 2^26 parts a value lies.
fn part(value: f64, max: f64) -> u32 {
    ((value + max) / (max + max) * f64::from(1u32 << STEPS)) as u32
}

/// The middle of a part.
fn middle(part: u32, max: f64) -> f64 {
    let parts = f64::from(1u32 << STEPS);
    let edge = |part: f64| -max + part * 1.0 / parts * (max + max);
    f64::midpoint(edge(f64::from(part)), edge(f64::from(part) + 1.0))
}

impl Place {
    /// Whether there is a score for it.
    pub(super) fn is_on_the_map(&self) -> bool {
        self.longitude.abs() <= LONGITUDE_MAX && self.latitude.abs() <= LATITUDE_MAX
    }

    fn bits(self, latitude_max: f64) -> u64 {
        let (x, y) = (part(self.longitude, LONGITUDE_MAX), part(self.latitude, latitude_max));
        spread(x) << 1 | spread(y)
    }

    /// Its score, of 52 bits.
    pub(super) fn score(self) -> u64 {
        self.bits(LATITUDE_MAX)
    }

    /// The place that a score stands for: the middle of its cell.
    pub(super) fn of_score(score: f64) -> Self {
        let bits = score_bits(score);
        let at = |bits, max: f64| middle(gather(bits), max).clamp(-max, max);
        Self { longitude: at(bits >> 1, LONGITUDE_MAX), latitude: at(bits, LATITUDE_MAX) }
    }

    /// The usual text of a geohash, whose latitudes go to the poles: eleven letters, of
    /// which 52 bits fill ten.
    pub(super) fn text(self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = self.bits(90.0);
        std::array::from_fn(|n| match n {
            10 => LETTERS[0],
            n => LETTERS[(bits >> (2 * STEPS as usize - 5 * (n + 1))) as usize & 31],
        })
    }

    /// Metres to another place.
    pub(super) fn distance(self, other: Self) -> f64 {
        let v = ((other.longitude.rad() - self.longitude.rad()) / 2.0).sin();
        if v == 0.0 {
            return self.distance_north(other);
        }
        let (a, b) = (self.latitude.rad(), other.latitude.rad());
        let u = ((b - a) / 2.0).sin();
        2.0 * EARTH_RADIUS * (u * u + a.cos() * b.cos() * v * v).sqrt().asin()
    }

    /// Metres to another place's latitude.
    pub(super) fn distance_north(self, other: Self) -> f64 {
        EARTH_RADIUS * (other.latitude.rad() - self.latitude.rad()).abs()
    }
}

/// The bits of a score, as x86-64 makes them of any double for C: what is too large has
/// none.
pub(super) fn score_bits(score: f64) -> u64 {
    const TOO_LARGE: f64 = 18_446_744_073_709_551_616.0;
    match score {
        _ if score < 0.0 => score as i64 as u64,
        _ if score >= TOO_LARGE => 0,
        _ => score as u64,
    }
}

trait Radians {
    fn rad(self) -> f64;
}

impl Radians for f64 {
    /// Degrees as radians.
    fn rad(self) -> f64 {
        self * (std::f64::consts::PI / 180.0)
    }
}

/// Degrees of a great circle in so many metres.
fn degrees(metres: f64) -> f64 {
    metres / EARTH_RADIUS / (std::f64::consts::PI / 180.0)
}

/// Half the way around the map, in metres of Mercator's projection.
const MAP_MAX: f64 = 20_037_726.37;

/// A cell of the map: its column and row, where the map is cut in two so many times in
/// either direction.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tile {
    x: u32,
    y: u32,
    step: u32,
}

impl Tile {
    /// The cell of a place. One on the eastern or northern edge is in a cell of its own,
    /// beyond the others.
    fn of(place: Place, step: u32) -> Self {
        let at = |value, max: f64| ((value + max) / (max + max) * f64::from(1u32 << step)) as u32;
        Self { x: at(place.longitude, LONGITUDE_MAX), y: at(place.latitude, LATITUDE_MAX), step }
    }

    /// The cell so many columns east and rows north, where the map goes on behind its edge
    /// where it begins on the other side.
    fn beside(self, east: i32, north: i32) -> Self {
        let mask = (1 << self.step) - 1;
        let by = |at: u32, by: i32| if by == 0 { at } else { at.wrapping_add_signed(by) & mask };
        Self { x: by(self.x, east), y: by(self.y, north), ..self }
    }

    /// Its western and eastern edge.
    fn longitudes(self) -> (f64, f64) {
        edges(self.x, self.step, LONGITUDE_MAX)
    }

    fn latitudes(self) -> (f64, f64) {
        edges(self.y, self.step, LATITUDE_MAX)
    }

    /// The scores within it, the end excluded.
    fn scores(self) -> (u64, u64) {
        let (bits, shift) = (spread(self.x) << 1 | spread(self.y), 2 * (STEPS - self.step));
        (bits << shift, (bits + 1) << shift)
    }
}

fn edges(at: u32, step: u32, max: f64) -> (f64, f64) {
    let edge = |at: f64| -max + at / f64::from(1u32 << step) * (max + max);
    (edge(f64::from(at)), edge(f64::from(at) + 1.0))
}

/// Ranges of scores, the end excluded, whose cells cover an area around a place that goes
/// so many metres `east` and west, and `north` and south; `radius` is how far it reaches.
///
/// They are the place's own cell and its eight neighbours, of a size that makes these
/// enough, in Redis's order: its own, then north, south, east, west, and those between.
/// Neighbours that the area does not reach are left out. As in Redis, what lies beyond the
/// 180th meridian, or near a pole, is found only where these cells happen to cover it.
pub(super) fn cover(center: Place, east: f64, north: f64, radius: f64) -> Vec<(u64, u64)> {
    let latitudes = degrees(north);
    let longitudes = |latitude: f64| degrees(east / latitude.rad().cos());
    // The area is widest where it is nearest to a pole.
    let longitudes = match center.latitude < 0.0 {
        true => longitudes(center.latitude - latitudes),
        false => longitudes(center.latitude + latitudes),
    };
    let (west, east) = (center.longitude - longitudes, center.longitude + longitudes);
    let (south, north) = (center.latitude - latitudes, center.latitude + latitudes);
    let mut step = step_for(radius, center.latitude);
    let mut own = Tile::of(center, step);
    let reaches = own.beside(0, 1).latitudes().1 >= north
        && own.beside(0, -1).latitudes().0 <= south
        && own.beside(1, 0).longitudes().1 >= east
        && own.beside(-1, 0).longitudes().0 <= west;
    if step > 1 && !reaches {
        step -= 1;
        own = Tile::of(center, step);
    }
    let (left, right) = own.longitudes();
    let (bottom, top) = own.latitudes();
    let is_reached = |(x, y): (i32, i32)| {
        step < 2
            || !(y < 0 && bottom < south
                || y > 0 && top > north
                || x < 0 && left < west
                || x > 0 && right > east)
    };
    const AROUND: [(i32, i32); 9] =
        [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
    let mut ranges = Vec::with_capacity(AROUND.len());
    for (x, y) in AROUND.into_iter().filter(|&beside| is_reached(beside)) {
        let range = own.beside(x, y).scores();
        // Around the smallest maps there are fewer than eight.
        if !ranges.contains(&range) {
            ranges.push(range);
        }
    }
    ranges
}

/// How often the map is cut so that a cell is about as large as the radius. Degrees of
/// longitude are shorter towards the poles, so cells are larger there.
fn step_for(radius: f64, latitude: f64) -> u32 {
    if radius == 0.0 {
        return STEPS;
    }
    let mut step = -1;
    let mut size = radius;
    while size < MAP_MAX {
        size *= 2.0;
        step += 1;
    }
    step -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    step.clamp(1, STEPS as i32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PALERMO: Place = Place { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Place = Place { longitude: 15.087269, latitude: 37.502669 };

    /// From the documentation of Redis.
    #[test]
    fn scores_texts_and_distances_are_those_of_redis() {
        assert_eq!(PALERMO.score(), 3_479_099_956_230_698);
        assert_eq!(CATANIA.score(), 3_479_447_370_796_909);
        let place = Place::of_score(PALERMO.score() as f64);
        assert_eq!(&place.text(), b"sqc8b49rny0");
        assert_eq!(format!("{:.17}", place.longitude), "13.36138933897018433");
        let other = Place::of_score(CATANIA.score() as f64);
        assert_eq!(format!("{:.4}", place.distance(other)), "166274.1516");
    }

    fn places() -> impl Strategy<Value = Place> {
        (-180.0..180.0, -85.0..85.0f64)
            .prop_map(|(longitude, latitude)| Place { longitude, latitude })
    }

    proptest! {
        #[test]
        fn a_score_comes_back_as_a_place_close_by(place in places()) {
            let back = Place::of_score(place.score() as f64);
            prop_assert!(place.distance(back) < 1.0);
            prop_assert_eq!(back.score(), place.score());
        }

        #[test]
        fn what_is_near_is_covered(place in places(), other in places(), near in 0.0..0.2f64, metres in 0.0..1e6f64) {
            prop_assume!(place.latitude.abs() < 60.0 && place.longitude.abs() < 150.0);
            let other = Place {
                longitude: place.longitude + (other.longitude - place.longitude) * near,
                latitude: place.latitude + (other.latitude - place.latitude) * near,
            };
            let covered = cover(place, metres, metres, metres);
            prop_assert!(covered.len() <= 9);
            if place.distance(other) <= metres {
                let score = other.score();
                prop_assert!(covered.iter().any(|&(from, to)| (from..to).contains(&score)));
            }
        }
    }
}
