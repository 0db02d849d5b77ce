// Sorts a table by the column whose heading is clicked; a second click turns the order.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, i) => {
    const cell = row.cells[i];
    const text = cell.dataset.v ?? cell.textContent.trim();
    const number = Number(text);
    return text !== "" && Number.isFinite(number) ? number : text.toLowerCase();
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  heads.forEach((head, i) => {
    head.querySelector("button").addEventListener("click", () => {
      const body = table.tBodies[0];
      const rows = [...body.rows].filter((row) => !row.classList.contains("sum"));
      const sums = [...body.rows].filter((row) => row.classList.contains("sum"));
      const numeric = rows.length > 0 && typeof key(rows[0], i) === "number";
      const before = head.getAttribute("aria-sort");
      const up = before ? before === "descending" : !numeric;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      rows.sort((a, b) => (up ? 1 : -1) * compare(key(a, i), key(b, i)));
      body.append(...rows, ...sums);
    });
  });
}
