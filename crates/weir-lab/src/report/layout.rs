//! How tables and sentences are laid out for a person, whatever is in them.

use comfy_table::{Cell as Field, CellAlignment, ContentArrangement, Table, presets};

use crate::report::number::UNKNOWN;

/// Narrower terminals are treated as this wide.
pub const NARROWEST: usize = 60;

/// A column with the texts of all its rows.
pub struct Filled {
    /// Its heading; the second line says the unit or the parts.
    pub heading: String,
    /// True for figures, which stand to the right.
    pub figure: bool,
    /// A text for each row.
    pub texts: Vec<String>,
}

impl Filled {
    /// The place that it takes, with what parts it from the next one.
    fn cost(&self) -> usize {
        let widest = self.texts.iter().map(|text| chars(text)).max();
        let heading = self.heading.lines().map(chars).max();
        widest.max(heading).unwrap_or(0) + 2
    }
}

/// A table in as many parts as the width asks for. Each part begins with the names, of which a column
/// that is empty for all rows is left out.
pub fn parts(mut names: Vec<Filled>, columns: Vec<Filled>, width: usize) -> Vec<Table> {
    names.retain(|column| column.texts.iter().any(|text| text != UNKNOWN));
    let names_width: usize = names.iter().map(Filled::cost).sum();
    let mut groups: Vec<Vec<Filled>> = vec![vec![]];
    let mut used = names_width;
    for column in columns {
        let needs = column.cost();
        if used + needs > width && groups.last().is_some_and(|group| !group.is_empty()) {
            groups.push(vec![]);
            used = names_width;
        }
        used += needs;
        if let Some(group) = groups.last_mut() {
            group.push(column);
        }
    }
    groups.iter().map(|group| part(&names, group, width)).collect()
}

fn part(names: &[Filled], group: &[Filled], width: usize) -> Table {
    let columns: Vec<&Filled> = names.iter().chain(group).collect();
    let field = |column: &Filled, text: &str| {
        let alignment = if column.figure { CellAlignment::Right } else { CellAlignment::Left };
        Field::new(text).set_alignment(alignment)
    };
    let mut table = table_of_width(width);
    table.set_header(columns.iter().map(|column| field(column, &column.heading)));
    let rows = columns.first().map_or(0, |column| column.texts.len());
    for row in 0..rows {
        table.add_row(columns.iter().map(|column| field(column, &column.texts[row])));
    }
    narrow(&mut table);
    table
}

/// An empty table, at most that wide, with a line under its headings.
pub fn table_of_width(width: usize) -> Table {
    use comfy_table::TableComponent::*;
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width.min(usize::from(u16::MAX)) as u16);
    // Between columns spaces are enough; one line parts the headings from the figures.
    for component in [
        VerticalLines,
        HorizontalLines,
        MiddleIntersections,
        TopBorder,
        TopBorderIntersections,
        BottomBorder,
        BottomBorderIntersections,
    ] {
        table.remove_style(component);
    }
    table.set_style(HeaderLines, '─').set_style(MiddleHeaderIntersections, '─');
    table
}

/// The text of a table of which all but the first column, and these, are figures, which stand to the right.
pub fn figures(mut table: Table, words: &[usize]) -> String {
    for (index, column) in table.column_iter_mut().enumerate() {
        if index > 0 && !words.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    narrow(&mut table);
    table.trim_fmt()
}

/// Takes the space before each column away; the place of the line between two is enough.
fn narrow(table: &mut Table) {
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 1));
    });
}

/// The characters of a text.
pub fn chars(text: &str) -> usize {
    text.chars().count()
}

/// Adds a paragraph, broken between words at the width.
pub fn paragraph(text: &mut String, words: &str, width: usize) {
    let mut used = 0;
    for word in words.split_whitespace() {
        let needs = chars(word);
        if used > 0 && used + 1 + needs > width {
            text.push('\n');
            used = 0;
        }
        if used > 0 {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += needs;
    }
    if used > 0 {
        text.push('\n');
    }
}
