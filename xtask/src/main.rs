//! Chores of the repository: `cargo run -p xtask -- help`.

mod book;
mod circles;
mod compared;
mod imports;
mod layers;
mod measuring_cost;
mod packages;
mod public_api;
mod same_program;
mod semver;
mod systems;
mod ten_lines;

use std::process::ExitCode;

use clap::Parser;

/// Chores of the repository.
#[derive(Parser)]
#[command(name = "xtask")]
enum Chore {
    /// Check the book: its links, its summary, that each design has a chapter with its options, and published figures.
    Book,
    Systems(systems::Systems),
    /// Check that portable layers name no operating system.
    Layers,
    /// Check that no files of a crate import each other in a circle.
    Circles,
    Imports(imports::Imports),
    TenLines(ten_lines::TenLines),
    /// Pack every package as it would be published, check what is in it, and use all where nothing else is: build and run
    /// programs on them, and install the command.
    Packages,
    PublicApi(public_api::PublicApi),
    Semver(semver::Semver),
    /// Compare one program with itself under two names, time and again, and count false winners: some ten minutes.
    SameProgram(same_program::SameProgram),
    /// What measuring costs: designs as they are measured, against the same designs in a program that measures nothing.
    MeasuringCost(measuring_cost::MeasuringCost),
}

fn main() -> anyhow::Result<ExitCode> {
    match Chore::parse() {
        Chore::Book => book::check(),
        Chore::Systems(chore) => chore.run(),
        Chore::Layers => layers::check(),
        Chore::Circles => circles::check(),
        Chore::Imports(chore) => chore.run(),
        Chore::TenLines(chore) => chore.run(),
        Chore::Packages => packages::check(),
        Chore::PublicApi(chore) => chore.run(),
        Chore::Semver(chore) => chore.run(),
        Chore::SameProgram(chore) => chore.run().map(|()| ExitCode::SUCCESS),
        Chore::MeasuringCost(chore) => chore.run().map(|()| ExitCode::SUCCESS),
    }
}
