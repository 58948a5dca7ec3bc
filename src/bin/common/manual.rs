//! `man` and `completions`: made from the definitions of the commands, so that they cannot say anything else.
//! `cuzk` has those of the daemon too.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

/// Print the manual page, or write a page for every command
#[derive(Args)]
pub struct ManArgs {
    /// Folder for pages of the program and of every command, made if it is not there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Print completions for a shell
#[derive(Args)]
pub struct CompletionsArgs {
    /// bash, elvish, fish, powershell or zsh
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl ManArgs {
    /// The pages of `programs`; without a folder the first one's on standard output.
    pub fn run(&self, programs: Vec<Command>) -> io::Result<()> {
        match &self.out {
            Some(dir) => programs.into_iter().try_for_each(|program| write_pages(program, dir)),
            None => programs.into_iter().take(1).try_for_each(print_page),
        }
    }
}

fn write_pages(program: Command, dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(program, dir)
}

fn print_page(program: Command) -> io::Result<()> {
    let mut page = Vec::new();
    Man::new(program).render(&mut page)?;
    io::stdout().write_all(&page)
}

impl CompletionsArgs {
    /// For all `programs`, one after the other.
    pub fn run(&self, programs: Vec<Command>) -> io::Result<()> {
        let mut script = Vec::new();
        for mut program in programs {
            let name = program.get_name().to_owned();
            clap_complete::generate(self.shell, &mut program, name, &mut script);
        }
        io::stdout().write_all(&script)
    }
}
