//! Which cores a thread, and all that it starts, may run on.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Cores by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores(Vec<usize>);

impl Cores {
    /// `0,2-3`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let number = |digits: &str| match digits.parse::<usize>() {
            Ok(core) if core < CpuSet::MAX_CPU => Ok(core),
            _ => Err(format!("'{digits}' is no core number")),
        };
        let mut cores = Vec::new();
        for part in text.split(',') {
            match part.split_once('-') {
                Some((first, last)) => cores.extend(number(first)?..=number(last)?),
                None => cores.push(number(part)?),
            }
        }
        cores.sort_unstable();
        cores.dedup();
        if cores.is_empty() { Err(format!("'{text}' names no core")) } else { Ok(Self(cores)) }
    }

    /// The cores that the calling thread may run on.
    pub fn allowed() -> io::Result<Self> {
        let set = sched_getaffinity(None)?;
        Ok(Self((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()))
    }

    /// How a comparison shares them: the first for the server, the others for
    /// the load. One core alone serves both.
    pub fn share(&self) -> (Self, Self) {
        match self.0.split_first() {
            Some((&first, rest)) if !rest.is_empty() => (Self(vec![first]), Self(rest.to_vec())),
            _ => (self.clone(), self.clone()),
        }
    }

    /// The first core that is not among `others`.
    pub fn first_outside(&self, others: &Self) -> Option<usize> {
        self.0.iter().copied().find(|core| !others.0.contains(core))
    }

    /// Whether a core is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().any(|core| other.0.contains(core))
    }

    /// Confines the calling thread, and the threads and processes that it starts
    /// from now on, to these cores.
    pub fn confine(&self) -> io::Result<()> {
        let mut set = CpuSet::new();
        for &core in &self.0 {
            set.set(core);
        }
        Ok(sched_setaffinity(None, &set)?)
    }
}

impl std::fmt::Display for Cores {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(usize::to_string).collect();
        formatter.write_str(&numbers.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_read() {
        assert_eq!(Cores::parse("0,2-4,3").map(|cores| cores.0), Ok(vec![0, 2, 3, 4]));
        for bad in ["", "x", "1-", "3-1", "99999"] {
            assert!(Cores::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_server_has_the_first_core() {
        let (server, load) = Cores(vec![1, 4, 5]).share();
        assert_eq!((server.to_string().as_str(), load.to_string().as_str()), ("1", "4,5"));
        assert!(!server.overlaps(&load));
        assert_eq!(server.first_outside(&load), Some(1));
        assert_eq!(Cores(vec![5]).first_outside(&load), None);
        let (server, load) = Cores(vec![3]).share();
        assert!(server.overlaps(&load));
    }

    #[test]
    fn a_thread_can_be_confined() {
        std::thread::spawn(|| {
            let (first, _) = Cores::allowed().unwrap().share();
            first.confine().unwrap();
            assert_eq!(Cores::allowed().unwrap(), first);
        })
        .join()
        .unwrap();
    }
}
