// Shown out of its folder, as by MLflow (from a blob: address), a relative link would lead to an empty page.
if (!/^(file|https?):$/.test(location.protocol)) {
  for (const a of document.querySelectorAll("a[href]")) if (!/^(#|[a-z]+:)/.test(a.getAttribute("href"))) a.removeAttribute("href");
}
// The headings of a long table are buttons that sort its rows: numbers by their size, what is empty last.
for (const table of document.querySelectorAll(".sorts table")) {
  const rows = [...table.tBodies[0].rows], heads = [...table.tHead.rows[0].cells];
  const told = (row, place) => (row.cells[place]?.textContent ?? "").trim();
  const amount = text => /^[-+]?[\d.,]+(e[-+]?\d+)?%?$/.test(text) ? parseFloat(text.replace(/,/g, "")) : NaN;
  const names = new Intl.Collator("en", {numeric: true});
  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const values = new Map(rows.map(row => [row, told(row, place)]));
      const empty = row => ["", "-"].includes(values.get(row));
      const numbers = rows.every(row => empty(row) || !isNaN(amount(values.get(row))));
      const order = (a, b) => numbers ? amount(values.get(a)) - amount(values.get(b)) : names.compare(values.get(a), values.get(b));
      table.tBodies[0].append(...[...rows].sort((a, b) => empty(a) - empty(b) || (empty(a) ? 0 : down ? order(b, a) : order(a, b))));
    });
  });
  table.parentElement.classList.add("ready");
}
// On a narrow screen, where each row is a card, what can be folded begins so.
if (matchMedia("(max-width: 34rem)").matches) {
  for (const block of document.querySelectorAll("main > details[open]")) block.open = false;
}
// A link to a folded block opens it.
const unfold = () => {
  const block = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (block?.matches("details")) block.open = true;
};
addEventListener("hashchange", unfold);
unfold();
