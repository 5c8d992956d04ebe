"use strict";
// Probabilities that two rows share a cluster, in the order of the tree's leaves; the strip shows the current cut.
coaltree.widget("together", (root, data) => {
  const { colours, ramp, sized, onRecolour } = clustering;
  const { element } = coaltree;
  const canvas = root.querySelector("canvas");
  const status = root.querySelector(".detail");
  const legend = root.querySelector(".legend");
  const values = coaltree.unpack(data.values);
  const rows = coaltree.unpack(data.rows); // the rows that the cells stand for, several for each cell of a large one
  const m = data.values.shape[0], n = rows.length;
  const start = (cell) => Math.floor((cell * n) / m); // the first leaf position of a cell
  const STRIP = 14;
  let side = 0, image = null, cursor = null;

  function stops(colour) {
    return colour.dark ? ["#1b1f25", "#3b6f9c", "#d6ecff"] : ["#ffffff", "#88ccee", "#332288"];
  }

  function paint(colour) {
    const shade = ramp(stops(colour));
    const pixels = new ImageData(m, m);
    for (let i = 0; i < m * m; i++) pixels.data.set([...shade(values[i] / 255), 255], 4 * i);
    const made = element("canvas", { width: m, height: m });
    made.getContext("2d").putImageData(pixels, 0, 0);
    return Object.assign(made, { dark: colour.dark });
  }

  function draw() {
    const { model, cut } = clustering.shared;
    const colour = colours(model);
    side = Math.min(root.clientWidth - STRIP, 620);
    canvas.style.width = `${side + STRIP}px`;
    const pen = sized(canvas, side + STRIP, side + STRIP);
    if (!image || image.dark !== colour.dark) image = paint(colour);
    pen.imageSmoothingEnabled = m > side;
    pen.drawImage(image, STRIP, STRIP, side, side);
    pen.strokeStyle = colour.line;
    pen.strokeRect(STRIP + 0.5, STRIP + 0.5, side - 1, side - 1);
    for (let begin = 0, end; begin < n; begin = end) {
      const label = cut.labels[rows[begin]];
      for (end = begin + 1; end < n && cut.labels[rows[end]] === label; end++);
      const from = STRIP + (begin / n) * side, length = ((end - begin) / n) * side;
      pen.fillStyle = colour.cluster(label);
      pen.fillRect(0, from, STRIP - 4, Math.max(length - 0.7, 0.4));
      pen.fillRect(from, 0, Math.max(length - 0.7, 0.4), STRIP - 4);
      if (length > 3 && cut.k <= 60) {
        pen.strokeStyle = pen.fillStyle;
        pen.lineWidth = 1.5;
        pen.strokeRect(from, from, length, length);
      }
    }
    if (cursor) {
      pen.strokeStyle = colour.accent;
      pen.lineWidth = 2;
      const cell = side / m;
      const width = Math.max(cell, 5), centre = (index) => STRIP + (index + 0.5) * cell - width / 2;
      pen.strokeRect(centre(cursor.column), centre(cursor.row), width, width);
    }
    const bar = element("span", { class: "bar" });
    bar.style.background = `linear-gradient(90deg, ${stops(colour)})`;
    legend.replaceChildren(element("span", {}, "Probability of the same cluster: 0", bar, "1"));
  }

  function group(cell) {
    const { model } = clustering.shared;
    const from = start(cell), to = start(cell + 1) - 1;
    const name = (position) => model.names[rows[position]];
    return from === to ? name(from) : `${to - from + 1} rows from ${name(from)} to ${name(to)}`;
  }

  function pointAt(row, column) {
    const inside = (value) => Math.min(Math.max(value, 0), m - 1);
    cursor = { row: inside(row), column: inside(column) };
    const share = values[cursor.row * m + cursor.column] / 255;
    status.replaceChildren(element("p", {},
      element("strong", { text: share.toFixed(2) }), ` ${group(cursor.row)} with ${group(cursor.column)}`));
    draw();
  }

  canvas.addEventListener("pointermove", (event) => {
    const frame = canvas.getBoundingClientRect();
    const at = (value) => Math.floor(((value - STRIP) / side) * m);
    pointAt(at(event.clientY - frame.top), at(event.clientX - frame.left));
  });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    if (cursor) pointAt(cursor.row + step[0], cursor.column + step[1]);
    else pointAt(0, 0);
  });
  canvas.setAttribute("aria-label", data.label);
  document.addEventListener("coaltree:cut", draw);
  new ResizeObserver(draw).observe(root);
  onRecolour(draw);
  draw();
});
