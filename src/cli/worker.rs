//! `--worker`: which of several workers this is, as given or, with `auto`, as Slurm or Kubernetes says in the environment.
//! What is missing or doesn't fit together is refused by name: a wrong number would leave a part to nobody.

use crate::error::{Error, Result};
use crate::materialize::worker::Worker;
use std::str::FromStr;

/// The option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    Worker(Worker),
    /// `auto`: of a Slurm array's tasks.
    Array,
    /// `auto/N`: of N pods of an indexed Kubernetes job.
    Indexed(u32),
}

impl FromStr for Given {
    type Err = Error;
    fn from_str(text: &str) -> Result<Given> {
        let expected = || {
            Error::invalid(
                "expected I/N, worker I of N counted from 0, such as 0/4; or auto (Slurm), or auto/N (Kubernetes)",
            )
        };
        match text.split_once('/') {
            None if text == "auto" => Ok(Given::Array),
            Some(("auto", of)) => {
                let of = number(of).filter(|of| *of > 0).ok_or_else(expected)?;
                Ok(Given::Indexed(u32::try_from(of).map_err(|_| expected())?))
            }
            _ => text.parse().map(Given::Worker).map_err(|_| expected()),
        }
    }
}

impl Given {
    pub fn resolve(self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Worker> {
        match self {
            Given::Worker(worker) => Ok(worker),
            Given::Array => of_array(variable),
            Given::Indexed(of) => {
                let index = required(variable, "JOB_COMPLETION_INDEX", &format!("auto/{of}"))?;
                fitting(index, of.into(), || format!("JOB_COMPLETION_INDEX is {index} and --worker says auto/{of}"))
            }
        }
    }
}

/// Of a job array: its tasks are counted from the smallest index on, step by step.
fn of_array(variable: &dyn Fn(&str) -> Option<String>) -> Result<Worker> {
    const COUNT: &str = "SLURM_ARRAY_TASK_COUNT";
    const ID: &str = "SLURM_ARRAY_TASK_ID";
    const MIN: &str = "SLURM_ARRAY_TASK_MIN";
    const STEP: &str = "SLURM_ARRAY_TASK_STEP";
    let get = |name| required(variable, name, "auto");
    let (count, id, min, step) = (get(COUNT)?, get(ID)?, get(MIN)?, get(STEP)?);
    let said = || format!("{COUNT} is {count}, {ID} is {id}, {MIN} is {min} and {STEP} is {step}");
    let behind = id.checked_sub(min).filter(|behind| step > 0 && behind.is_multiple_of(step));
    let index = behind.map(|behind| behind / step).ok_or_else(|| inconsistent(&said()))?;
    fitting(index, count, said)
}

/// A variable that must be there and hold a number.
fn required(variable: &dyn Fn(&str) -> Option<String>, name: &str, given: &str) -> Result<u64> {
    let Some(text) = variable(name) else {
        let where_ = match given {
            "auto" => "set in the tasks of a Slurm job array; elsewhere give --worker I/N, or auto/N in Kubernetes",
            _ => {
                "set in the pods of an indexed Kubernetes job; elsewhere give --worker I/N, or auto in a Slurm job array"
            }
        };
        return Err(Error::invalid(format!(
            "--worker {given} needs the variable {name}, which isn't set: it is {where_}"
        )));
    };
    number(&text).ok_or_else(|| {
        Error::invalid(format!("--worker {given} expects a number in the variable {name}, found {text:?}"))
    })
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

fn fitting(index: u64, of: u64, said: impl Fn() -> String) -> Result<Worker> {
    let worker = u32::try_from(index).ok().zip(u32::try_from(of).ok());
    worker.and_then(|(index, of)| Worker::new(index, of).ok()).ok_or_else(|| inconsistent(&said()))
}

fn inconsistent(said: &str) -> Error {
    Error::invalid(format!(
        "{said}, of which no worker's number can be made: expected as many evenly spaced numbers as there are workers; \
         give --worker I/N"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(given: &str, variables: &[(&str, &str)]) -> Result<String> {
        let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        given.parse::<Given>()?.resolve(&variable).map(|worker| worker.to_string())
    }

    fn slurm<'a>(count: &'a str, id: &'a str, min: &'a str, step: &'a str) -> [(&'static str, &'a str); 4] {
        [
            ("SLURM_ARRAY_TASK_COUNT", count),
            ("SLURM_ARRAY_TASK_ID", id),
            ("SLURM_ARRAY_TASK_MIN", min),
            ("SLURM_ARRAY_TASK_STEP", step),
        ]
    }

    #[test]
    fn numbers_are_taken_as_given_or_from_the_environment() {
        assert_eq!(resolve("2/4", &slurm("9", "1", "0", "1")).unwrap(), "2/4", "what is given wins");
        assert_eq!(resolve("auto", &slurm("4", "0", "0", "1")).unwrap(), "0/4");
        assert_eq!(resolve("auto", &slurm("4", "16", "10", "2")).unwrap(), "3/4");
        assert_eq!(resolve("auto/8", &[("JOB_COMPLETION_INDEX", "7")]).unwrap(), "7/8");
    }

    #[test]
    fn what_is_no_worker_is_one_error_of_the_command_line() {
        for text in ["", "4/4", "0/0", "1", "auto/", "auto/0", "auto/x", "Auto", "auto/4294967296", "-1/4", "1/2/3"] {
            let error = text.parse::<Given>().unwrap_err();
            assert!(error.message().starts_with("expected I/N, worker I of N counted from 0"), "{text:?}: {error}");
        }
    }

    #[test]
    fn variables_that_are_missing_or_do_not_fit_are_named() {
        let refused = |given: &str, variables: &[(&str, &str)]| resolve(given, variables).unwrap_err().to_string();
        let whole = slurm("4", "1", "0", "1");
        for (missing, _) in whole {
            let rest: Vec<_> = whole.into_iter().filter(|(name, _)| *name != missing).collect();
            let error = refused("auto", &rest);
            assert!(error.contains(&format!("needs the variable {missing}, which isn't set")), "{error}");
            let wrong: Vec<_> = whole.map(|(name, v)| if name == missing { (name, "1x") } else { (name, v) }).to_vec();
            let error = refused("auto", &wrong);
            assert!(error.contains(&format!("expects a number in the variable {missing}, found \"1x\"")), "{error}");
        }
        let error = refused("auto/8", &[]);
        assert!(error.contains("JOB_COMPLETION_INDEX, which isn't set"), "{error}");
        let error = refused("auto/8", &[("JOB_COMPLETION_INDEX", "8")]);
        assert!(error.contains("JOB_COMPLETION_INDEX is 8 and --worker says auto/8"), "{error}");
        for (count, id, min, step) in [
            ("4", "4", "0", "1"),
            ("4", "0", "1", "1"),
            ("4", "3", "0", "2"),
            ("4", "0", "0", "0"),
            ("0", "0", "0", "1"),
        ] {
            let error = refused("auto", &slurm(count, id, min, step));
            for (name, value) in slurm(count, id, min, step) {
                assert!(error.contains(&format!("{name} is {value}")), "{error}");
            }
        }
    }
}
