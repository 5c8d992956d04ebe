"use strict";
// Shared by every report: widgets find their data here, and tables sort.
const coaltree = (() => {
  const ARRAYS = {
    u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array,
  };

  /** Turn what `packed` wrote into a typed array, flat. */
  function unpack(value) {
    const text = atob(value.data);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return new ARRAYS[value.dtype](bytes.buffer);
  }

  /** Run `start(root, data)` for every widget of a name. */
  function widget(name, start) {
    for (const root of document.querySelectorAll(".widget")) {
      if (root.dataset.widget !== name) continue;
      const holder = root.querySelector('script[type="application/json"]');
      start(root, JSON.parse(holder.textContent));
      root.dataset.ready = "yes";
    }
  }

  /** Make an element; strings become text, never markup. */
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "text") made.textContent = value;
      else if (value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }

  function sortTable(button) {
    const header = button.closest("th");
    const ascending = header.getAttribute("aria-sort") !== "ascending";
    for (const other of header.parentElement.children) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const body = header.closest("table").tBodies[0];
    const column = header.cellIndex;
    const keyed = [...body.rows].map((row) => {
      const cell = row.cells[column];
      return { row, key: "value" in cell.dataset ? cell.dataset.value : null, text: cell.textContent };
    });
    const sign = ascending ? 1 : -1;
    keyed.sort((a, b) => {
      if (a.key === null || b.key === null) return sign * a.text.localeCompare(b.text, undefined, { numeric: true });
      if (a.key === "" || b.key === "") return (a.key === "") - (b.key === ""); // missing values come last
      return sign * (Number(a.key) - Number(b.key));
    });
    body.append(...keyed.map((item) => item.row));
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.sort");
    if (button) sortTable(button);
  });

  return { unpack, widget, element };
})();
