"use strict";
// The dendrogram with the data beside it, on one canvas, and the table of clusters below.
coaltree.widget("clustering", (root, data) => {
  const { makeModel, cut, size, members, colours, short, percent, clip, ramp, sized, onRecolour } = clustering;
  const { element } = coaltree;
  const model = makeModel(data);
  const { n, nodeTime, children, heat } = model;
  const layout = clustering.makeLayout(model);
  const { place, first, last } = layout;
  /** Where a tip is drawn, in CSS pixels of the canvas: the middle of its rows' end. */
  const placeOf = (tip) => [box.right - 4, y(place[tip])];
  Object.assign(clustering.shared, { model, layout, placeOf });
  const find = (selector) => root.querySelector(selector);
  const canvas = find("canvas.tree");
  const slider = find("#cut-slider"), number = find("#cut-number"), scale = find("#time-scale"), search = find("#find");
  const tipsShown = find("#tips-shown");
  const MOST_ROWS = 200, MOST_MEMBERS = 300, ROOT = 2 * n - 2;
  const SMALL = 300; // rows of a branch that is shown whole
  const large = n > SMALL;
  const SAID = 0.05; // exact support from which the table has it
  const LOW = 0.5; // expected overlap below which a clade is drawn as doubtful

  let now = null; // the cut that is shown
  let hovered = -1, focused = -1;
  const trail = [ROOT]; // the branches that were opened, one inside the other
  const view = { from: -0.5, to: 0.5, time: 0 };
  let box = null; // where things are, in CSS pixels; made by draw
  let heatImage = null;

  // ---- time and places

  const positive = model.times.find((time) => time > 0) || 1;
  let floor = positive; // of the logarithmic axis: below all but the earliest merges that are shown
  const bend = {
    linear: (t) => t,
    sqrt: (t) => Math.sqrt(t),
    log: (t) => Math.log(Math.max(t, floor) / floor),
  };
  const unbend = { linear: (u) => u, sqrt: (u) => u * u, log: (u) => floor * Math.exp(u) };
  const endOf = (node) =>
    (node < n ? 0 : Math.max(nodeTime[node], Number.isFinite(model.high[node - n]) ? model.high[node - n] : 0)) || 1;
  const count = () => layout.tips.length;
  const margin = () => (scale.value === "log" ? 1.3 : 1.04);
  const x = (time) => box.right - (bend[scale.value](time) / bend[scale.value](view.time)) * (box.right - box.left);
  const y = (position) => box.top + ((position - view.from) / (view.to - view.from)) * (box.bottom - box.top);
  const leafHeight = () => (box.bottom - box.top) / (view.to - view.from);

  /** Lay out the last branch of the trail. */
  function relay() {
    const root = trail[trail.length - 1];
    const most = size(model, root) <= SMALL ? SMALL : Number(tipsShown.value);
    layout.show(root, most, now.k <= most ? now.cluster : null);
    heatImage = null;
    const times = [...layout.open, ...layout.tips.filter(layout.isClosed)].map((node) => nodeTime[node]).sort((a, b) => a - b);
    floor = times[Math.floor(0.05 * times.length)] * 0.7 || positive;
    if (!layout.isShown(focused)) focused = -1;
    hovered = -1;
    wholeView();
    showTrail();
  }

  function wholeView() {
    view.from = -0.5;
    view.to = count() - 0.5;
    view.time = endOf(layout.root) * margin();
    requestDraw();
  }

  function wholeTree() {
    if (trail.length > 1) backTo(0);
    else wholeView();
  }

  /** Show one branch alone; the trail leads back. */
  function open(node) {
    if (node < n || node === layout.root) return;
    if (!layout.isShown(node)) trail.length = 1;
    if (node !== ROOT) trail.push(node);
    relay();
    focusOn(node);
  }

  function backTo(step) {
    const left = trail[step + 1];
    trail.length = step + 1;
    relay();
    let node = left; // what was left may be hidden in a larger clade
    while (node >= 0 && !layout.isShown(node)) node = model.parent[node];
    focusOn(node < 0 ? layout.root : node);
  }

  /** Escape undoes the last step: a zoom, or the last opening. */
  function back() {
    const zoomed = view.to - view.from < count() || view.time < endOf(layout.root);
    if (!zoomed && trail.length > 1) backTo(trail.length - 2);
    else wholeView();
  }

  /** A branch in which a node is shown: this one, or else the largest one that is shown whole. */
  function bring(node) {
    if (layout.isShown(node)) return;
    let branch = node;
    while (model.parent[branch] >= 0 && (branch === node || size(model, model.parent[branch]) <= SMALL)) {
      branch = model.parent[branch];
    }
    trail.length = 1;
    if (branch !== ROOT) trail.push(branch);
    relay();
  }

  function showTrail() {
    const panel = find(".trail");
    panel.hidden = !large;
    if (!large) return;
    const rows = (node) => `${size(model, node).toLocaleString("en")} rows`;
    const steps = trail.map((node, i) => {
      const text = i ? rows(node) : `Whole tree, ${rows(node)}`;
      if (i === trail.length - 1) return element("span", { "aria-current": "location", text });
      const button = element("button", { type: "button", text });
      button.addEventListener("click", () => { backTo(i); canvas.focus({ preventScroll: true }); });
      return button;
    });
    const closed = layout.tips.filter(layout.isClosed).length;
    const told = closed
      ? `Closed clades are triangles, ${closed} of ${count()} branches: click one to open it.` : "Every row of this branch is shown.";
    panel.replaceChildren(...steps.flatMap((step, i) => (i ? [" › ", step] : [step])), element("span", { class: "told", text: told }));
  }

  function zoom(factor, about = (view.from + view.to) / 2) {
    const span = Math.min(Math.max((view.to - view.from) * factor, Math.min(3, count())), count());
    const share = (about - view.from) / (view.to - view.from);
    moveTo(about - share * span, span);
  }

  function moveTo(from, span) {
    view.from = Math.min(Math.max(from, -0.5), count() - 0.5 - span);
    view.to = view.from + span;
    requestDraw();
  }

  function zoomToNode(node) {
    if (large) {
      open(node);
      return;
    }
    const rows = size(model, node);
    const span = Math.min(Math.max(rows * 1.08, Math.min(3, n)), n);
    moveTo((first[node] + last[node]) / 2 - span / 2, span);
    const up = node < n || node === ROOT ? node : model.parent[node];
    view.time = (node === ROOT ? endOf(ROOT) : nodeTime[up] || endOf(ROOT)) * margin();
    requestDraw();
  }

  function reveal(node) {
    const span = view.to - view.from;
    if (first[node] < view.from || last[node] > view.to) {
      if (last[node] - first[node] + 1 > span) wholeView();
      else moveTo(place[node] - span / 2, span);
    }
    if (nodeTime[node] > view.time) view.time = nodeTime[node] * 1.1;
  }

  // ---- drawing

  let waiting = false;
  function requestDraw() {
    if (!waiting) requestAnimationFrame(() => { waiting = false; draw(); });
    waiting = true;
  }

  function layOut() {
    const width = canvas.clientWidth || 900;
    // Closed clades are told apart by their labels, so they get the room for them.
    const labelled = layout.tips.some(layout.isClosed) ? Math.min(11 * count(), 880) + 150 : 0;
    const height = Math.max(Math.min(Math.max(18 * count() + 130, 340), Math.max(window.innerHeight * 0.72, 480)), labelled);
    const heatWidth = heat ? Math.min(Math.max(26 * heat.d, 60), 0.38 * width) : 0;
    const named = heat && heatWidth / heat.d >= 11;
    const longest = named ? Math.max(...heat.columns.map((name) => name.length)) : 0;
    const labels = Math.min(150, 0.18 * width);
    const right = width - labels - heatWidth - 26;
    return {
      width, height, left: 14, right, top: named ? Math.min(12 + 6.6 * longest, 140) : 14, bottom: height - 40,
      strip: right + 4, heatLeft: right + 18, heatWidth, labelLeft: right + 18 + heatWidth + (heat ? 8 : 2), named,
    };
  }

  function draw() {
    box = layOut();
    const pen = sized(canvas, box.width, box.height);
    const colour = colours(model);
    pen.clearRect(0, 0, box.width, box.height);
    drawHighlight(pen, colour);
    pen.save();
    pen.beginPath();
    pen.rect(0, box.top - 1, box.width, box.bottom - box.top + 2);
    pen.clip();
    drawBranches(pen, colour);
    drawMarks(pen, colour);
    drawStrip(pen, colour);
    if (heat) drawHeat(pen, colour);
    drawLabels(pen, colour);
    pen.restore();
    drawCut(pen, colour);
    drawAxis(pen, colour);
    if (box.named) drawColumns(pen, colour);
  }

  function drawHighlight(pen, colour) {
    const node = hovered >= 0 ? hovered : focused;
    if (node < 0 || !layout.isShown(node) || (large && node === layout.root)) return;
    const from = Math.max(y(first[node] - 0.5), box.top), to = Math.min(y(last[node] + 0.5), box.bottom);
    if (to <= from) return;
    pen.fillStyle = colour.accent;
    pen.globalAlpha = 0.13;
    const start = Math.max(x(nodeTime[node]), box.left);
    pen.fillRect(start, from, box.width - start, Math.max(to - from, 2));
    pen.globalAlpha = 1;
  }

  const clusterOf = (node) => now.cluster[node];
  const overlapOf = (node) => (model.overlap && node >= n ? model.overlap[node - n] : NaN);

  function drawBranches(pen, colour) {
    const paths = new Map();
    const path = (key) => {
      if (!paths.has(key)) paths.set(key, new Path2D());
      return paths.get(key);
    };
    const cutX = x(now.time);
    for (const node of layout.open) {
      if (last[node] < view.from - 1 || first[node] > view.to + 1) continue;
      const k = node - n;
      const inside = clusterOf(node) >= 0;
      const at = x(nodeTime[node]);
      const a = children[2 * k], b = children[2 * k + 1];
      const own = path(clusterOf(node));
      own.moveTo(at, y(place[a]));
      own.lineTo(at, y(place[b]));
      for (const child of [a, b]) {
        const height = y(place[child]);
        const start = x(nodeTime[child]);
        if (inside || clusterOf(child) < 0) {
          own.moveTo(at, height);
          own.lineTo(start, height);
        } else { // the branch above a cluster keeps its colour up to the cut, or all the way where no line cuts so
          const until = Number.isNaN(cutX) ? at : cutX;
          own.moveTo(at, height);
          own.lineTo(until, height);
          const stem = path(clusterOf(child));
          stem.moveTo(until, height);
          stem.lineTo(start, height);
        }
      }
    }
    pen.lineWidth = leafHeight() > 6 ? 1.6 : leafHeight() > 1.5 ? 1.1 : 0.7;
    for (const [key, lines] of paths) {
      pen.strokeStyle = key < 0 ? colour.soft : colour.cluster(key);
      pen.stroke(lines);
    }
    drawClosed(pen, colour);
  }

  /** Closed clades as triangles from their merge to the rows; doubtful ones pale and dashed. */
  function drawClosed(pen, colour) {
    const half = Math.min(0.42 * leafHeight(), 9);
    for (const node of layout.tips) {
      if (!layout.isClosed(node) || last[node] < view.from - 1 || first[node] > view.to + 1) continue;
      const height = y(place[node]), key = clusterOf(node), doubtful = overlapOf(node) < LOW;
      const end = x(scale.value === "log" ? floor : 0);
      pen.beginPath();
      pen.moveTo(Math.min(x(nodeTime[node]), end - 6), height);
      pen.lineTo(end, height - half);
      pen.lineTo(end, height + half);
      pen.closePath();
      pen.fillStyle = pen.strokeStyle = key < 0 ? colour.soft : colour.cluster(key);
      pen.globalAlpha = doubtful ? 0.12 : 0.45;
      pen.fill();
      pen.globalAlpha = 1;
      pen.lineWidth = node === focused ? 2.5 : 1;
      pen.setLineDash(doubtful ? [2, 2] : []);
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  /** Overlaps and time intervals of the clades that have room for them. */
  function drawMarks(pen, colour) {
    const shade = ramp(colour.dark ? ["#1b1f25", "#e7eaef"] : ["#ffffff", "#20242b"]);
    pen.font = "10px system-ui, sans-serif";
    pen.textBaseline = "bottom";
    pen.textAlign = "right";
    const APART = 13; // pixels between marks: later merges come first and keep their place
    const taken = new Set();
    const clades = [...layout.open, ...layout.tips.filter(layout.isClosed)].sort((a, b) => b - a);
    for (const node of clades) {
      const k = node - n;
      if (last[node] < view.from || first[node] > view.to) continue;
      const closed = layout.isClosed(node);
      const room = (last[node] - first[node] + 1) * leafHeight();
      if (room < (closed ? 8 : 14)) continue;
      const at = x(nodeTime[node]), height = y(place[node]);
      const column = Math.floor(at / APART), row = Math.floor(height / APART);
      let crowded = false;
      for (const i of [-1, 0, 1]) for (const j of [-1, 0, 1]) crowded ||= taken.has(`${column + i},${row + j}`);
      if (crowded && leafHeight() < 9 && node !== focused) continue;
      taken.add(`${column},${row}`);
      if (Number.isFinite(model.low[k])) {
        pen.fillStyle = colour.accent;
        pen.globalAlpha = 0.2;
        const end = x(model.low[k]), start = x(model.high[k]);
        pen.fillRect(start, height - 3, Math.max(end - start, 1), 6);
        pen.globalAlpha = 1;
      }
      if (node === ROOT || (!model.overlap && node !== focused)) continue;
      pen.beginPath();
      pen.arc(at, height, node === focused ? 5 : closed ? 2.6 : 3.2, 0, 7);
      pen.fillStyle = model.overlap ? `rgb(${shade(model.overlap[k])})` : colour.paper;
      pen.fill();
      pen.lineWidth = node === focused ? 2.5 : 1;
      pen.strokeStyle = node === focused ? colour.accent : colour.ink;
      pen.stroke();
      if (room >= 30 && overlapOf(node) < 0.995) {
        pen.fillStyle = colour.ink;
        pen.fillText(String(Math.round(100 * model.overlap[k])), at - 5, height - 2);
      }
    }
    if (focused >= 0 && focused < n && layout.isShown(focused)) {
      pen.beginPath();
      pen.arc(x(0), y(place[focused]), 4, 0, 7);
      pen.strokeStyle = colour.accent;
      pen.lineWidth = 2.5;
      pen.stroke();
    }
  }

  /** Neighbouring tips of one cluster; a closed clade above the cut, which has several, is by itself. */
  function runs() {
    const found = [];
    for (const [i, node] of layout.tips.entries()) {
      const cluster = clusterOf(node), previous = found[found.length - 1];
      if (previous && cluster >= 0 && previous.cluster === cluster) previous.to = i;
      else found.push({ cluster, from: i, to: i, node });
    }
    return found;
  }

  function drawStrip(pen, colour) {
    for (const { cluster, from, to, node } of runs()) {
      if (to < view.from - 1 || from > view.to + 1) continue;
      const gap = leafHeight() * (to - from + 1) > 4 ? 0.5 : 0;
      const top = y(from - 0.5) + gap, bottom = y(to + 0.5) - gap;
      if (cluster >= 0) {
        pen.fillStyle = colour.cluster(cluster);
        pen.fillRect(box.strip, top, 9, Math.max(bottom - top, 0.5));
        continue;
      }
      const lines = Math.max(Math.round(bottom - top), 1), rows = size(model, node); // the clusters in it, pixel by pixel
      for (let i = 0; i < lines; i++) {
        const leaf = model.order[model.first[node] + Math.floor(((i + 0.5) / lines) * rows)];
        pen.fillStyle = colour.cluster(now.labels[leaf]);
        pen.fillRect(box.strip, top + i, 9, 1);
      }
    }
  }

  function heatRamp(colour) {
    const middle = colour.dark ? "#2b3038" : "#f7f7f7";
    return ramp(["#2166ac", "#92c5de", middle, "#f4a582", "#b2182b"]);
  }

  function drawHeat(pen, colour) {
    if (!heatImage || heatImage.dark !== colour.dark) heatImage = paintHeat(colour);
    const top = y(-0.5), bottom = y(count() - 0.5);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(heatImage, box.heatLeft, top, box.heatWidth, bottom - top);
  }

  /** One line a tip: a row's values, or the means of a closed clade. */
  function paintHeat(colour) {
    const paint = heatRamp(colour);
    const image = new ImageData(heat.d, count());
    layout.tips.forEach((node, i) => {
      for (let j = 0; j < heat.d; j++) {
        const score = heat.meanScore(model.first[node], model.last[node], j);
        const rgb = Number.isNaN(score) ? [160, 166, 174] : paint(0.5 + score / (2 * heat.limit));
        image.data.set([...rgb, 255], 4 * (i * heat.d + j));
      }
    });
    const made = element("canvas", { width: heat.d, height: count() });
    made.getContext("2d").putImageData(image, 0, 0);
    return Object.assign(made, { dark: colour.dark });
  }

  function drawLabels(pen, colour) {
    const room = leafHeight();
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillStyle = colour.ink;
    if (room < 9) {
      drawClusterNames(pen, colour);
      return;
    }
    const fontSize = Math.min(12, room * 0.85);
    pen.font = `${fontSize}px system-ui, sans-serif`;
    const most = Math.floor((box.width - box.labelLeft) / (0.52 * fontSize));
    for (let i = Math.max(Math.floor(view.from), 0); i <= Math.min(Math.ceil(view.to), count() - 1); i++) {
      pen.fillText(clip(tipName(layout.tips[i], most).replace(/\s+/g, " "), most), box.labelLeft, y(i));
    }
  }

  function tipName(node, most) {
    if (node < n) return model.names[node];
    const rows = size(model, node).toLocaleString("en");
    const whole = clusterOf(node) >= 0 && (node === ROOT || clusterOf(model.parent[node]) < 0); // all of a cluster
    const share = overlapOf(node);
    const text = `${whole ? `${clusterOf(node)}: ` : ""}${rows} rows${Number.isNaN(share) ? "" : `, ${percent(share)}`}`;
    return text.length <= most ? text : rows;
  }

  function drawClusterNames(pen, colour) {
    pen.font = "12px system-ui, sans-serif";
    let lowest = -Infinity;
    for (const run of runs()) {
      const from = Math.max(y(run.from - 0.5), box.top), to = Math.min(y(run.to + 0.5), box.bottom);
      const middle = (from + to) / 2;
      if (run.cluster < 0 || to - from < 5 || middle < lowest + 14) continue;
      lowest = middle;
      let rows = 0;
      for (let i = run.from; i <= run.to; i++) rows += size(model, layout.tips[i]);
      pen.fillText(`${run.cluster}: ${rows.toLocaleString("en")} ${rows === 1 ? "row" : "rows"}`, box.labelLeft, middle);
    }
  }

  function drawCut(pen, colour) {
    const at = Math.round(x(now.time)) + 0.5; // a crisp line
    if (!(at >= box.left)) return; // nor where no line cuts so
    pen.setLineDash([4, 4]);
    pen.strokeStyle = colour.accent;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(at, box.top - 4);
    pen.lineTo(at, box.bottom + 4);
    pen.stroke();
    pen.setLineDash([]);
  }

  function drawAxis(pen, colour) {
    pen.strokeStyle = colour.line;
    pen.fillStyle = colour.soft;
    pen.lineWidth = 1;
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "top";
    const base = box.bottom + 8;
    pen.beginPath();
    pen.moveTo(box.left, base);
    pen.lineTo(box.right, base);
    let previous = Infinity;
    for (const time of ticks()) {
      const at = x(time), label = time > 0 && time < 1e-3 ? Number(time.toPrecision(4)).toExponential() : short(time);
      const room = Math.max(34, pen.measureText(label).width + 10);
      if (at < box.left || at > previous - room) continue;
      previous = at;
      pen.moveTo(at, base);
      pen.lineTo(at, base + 4);
      pen.fillText(label, at, base + 6);
    }
    pen.stroke();
    pen.fillText("merge time", (box.left + box.right) / 2, base + 20);
  }

  function ticks() {
    if (scale.value === "log") {
      const out = [];
      for (let e = Math.floor(Math.log10(floor)); 10 ** e <= view.time; e++) {
        for (const m of [1, 2, 5]) if (m * 10 ** e >= floor) out.push(m * 10 ** e);
      }
      return out;
    }
    const raw = view.time / 6, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * ([1, 2, 5].find((m) => m * power >= raw) || 10);
    const fine = scale.value === "sqrt" ? [0.02, 0.1, 0.4].map((share) => step * share) : [];
    return [0, ...fine, ...Array.from({ length: Math.floor(view.time / step) }, (_, i) => (i + 1) * step)];
  }

  function drawColumns(pen, colour) {
    const width = box.heatWidth / heat.d;
    pen.font = `${Math.min(11.5, width * 0.8)}px system-ui, sans-serif`;
    pen.fillStyle = colour.ink;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    heat.columns.forEach((name, j) => {
      pen.save();
      pen.translate(box.heatLeft + (j + 0.5) * width, box.top - 5);
      pen.rotate(-Math.PI / 2);
      pen.fillText(clip(name, 17), 0, 0);
      pen.restore();
    });
  }

  // ---- what is pointed at

  function nodeAt(px, py) {
    if (py < box.top || py > box.bottom) return -1;
    const position = view.from + ((py - box.top) / (box.bottom - box.top)) * (view.to - view.from);
    let node = layout.tips[Math.min(Math.max(Math.round(position), 0), count() - 1)];
    if (px > box.right - 2) return node;
    // The clade whose box is pointed at: the smallest one that reaches this far towards the root.
    while (layout.parent(node) >= 0 && x(nodeTime[layout.parent(node)]) >= px - 3) node = layout.parent(node);
    return node;
  }

  function describe(node) {
    const rows = size(model, node);
    if (node < n) {
      const parts = [now.labels[node] < 0 ? "An outlier." : `In cluster ${now.labels[node]}.`];
      return { title: model.names[node], parts };
    }
    const k = node - n;
    const parts = [
      model.overlap
        ? `Expected overlap ${percent(model.overlap[k])} with the branch of the true tree that is most like it; exact support ${percent(model.exact[k])}.`
        : "No expected overlap: there is one tree only.",
      `They merge at time ${short(model.times[k])}` +
        (Number.isFinite(model.low[k])
          ? ` (${percent(model.level)} interval ${short(model.low[k])} to ${short(model.high[k])}).` : "."),
    ];
    parts.push(clusterOf(node) >= 0 ? `In cluster ${clusterOf(node)}.` : "Above the cut.");
    if (layout.isClosed(node)) parts.push("Click it, or press Enter, to open it.");
    return { title: `Branch of ${rows.toLocaleString("en")} rows`, parts };
  }

  function showDetail(at = null) {
    const node = hovered >= 0 ? hovered : focused;
    const panel = find(".detail");
    panel.dataset.node = node;
    if (node < 0) return;
    const { title, parts } = describe(node);
    const heading = element("p", {}, element("strong", { text: title }), ` ${parts.join(" ")}`);
    const lines = [heading];
    const about = heat && heat.coarse ? "about " : "";
    if (at && heat && at.px >= box.heatLeft && at.px < box.heatLeft + box.heatWidth) {
      const j = Math.floor(((at.px - box.heatLeft) / box.heatWidth) * heat.d);
      lines.push(node < n ? element("p", { text: `${heat.columns[j]}: ${valueText(node, j, about)}` }) : summary(node, j, about));
    } else if (node < n && heat) {
      const shown = heat.columns.slice(0, 40).map((name, j) => `${name}: ${valueText(node, j, about)}`);
      lines.push(element("p", { class: "members", text: shown.join(", ") }));
    }
    if (node >= n) {
      const rows = size(model, node);
      const names = members(model, node, MOST_MEMBERS).map((leaf) => model.names[leaf]).join(", ");
      const more = rows > MOST_MEMBERS ? ` … and ${(rows - MOST_MEMBERS).toLocaleString("en")} more` : "";
      lines.push(element("p", { class: "members", text: names + more }));
    }
    panel.replaceChildren(...lines);
  }

  const valueText = (leaf, j, about) => (heat.levels[j] ? heat.levelName(leaf, j) : `${about}${short(heat.value(leaf, j))}`);

  /** A column over a clade: its mean, or the shares of its levels as bars. */
  function summary(node, j, about) {
    const name = heat.columns[j], from = model.first[node], to = model.last[node];
    if (!heat.levels[j]) return element("p", { text: `${name}: mean ${about}${short(heat.mean(from, to, j))}` });
    const shares = heat.shares(from, to, j);
    const bars = heat.levels[j].map((level, k) => {
      const bar = element("span", { class: "share" });
      bar.style.width = `${8 * shares[k]}rem`;
      return element("span", { class: "level" }, bar, `${level} ${percent(shares[k])}`);
    });
    return element("p", {}, `${name}: `, ...bars);
  }

  function focusOn(node) {
    bring(node);
    focused = node;
    hovered = -1;
    reveal(node);
    showDetail();
    requestDraw();
  }

  // ---- the cut

  function setCut(k) {
    k = Math.min(Math.max(Math.round(k) || 1, 1), model.splits.length + 1);
    now = cut(model, k);
    slider.value = Math.min(k, Number(slider.max));
    slider.setAttribute("aria-valuetext", `${k} clusters`);
    number.value = k;
    root.dataset.clusters = k;
    find(".chosen").disabled = k === model.chosen;
    const sizes = [...now.counts].sort((a, b) => b - a), apart = model.outliers.size;
    const shown = sizes.slice(0, 6).map((rows) => (large ? rows.toLocaleString("en") : rows)).join(", ") + (sizes.length > 6 ? ", …" : "");
    find(".summary").textContent = `${k} ${k === 1 ? "cluster" : "clusters"} of ${shown} rows${apart ? `, ${apart} outlier${apart > 1 ? "s" : ""}` : ""}${Number.isNaN(now.time) ? "" : `, cut at time ${short(now.time)}`}.`;
    fillTable();
    if (large || layout.root < 0) relay(); // clusters have branches of their own
    showDetail();
    requestDraw();
    clustering.shared.cut = now;
    document.dispatchEvent(new CustomEvent("coaltree:cut"));
  }

  const allShares = heat ? heat.columns.map((_, j) => (heat.levels[j] ? heat.shares(0, n - 1, j) : null)) : [];

  /** What sets a cluster apart from all rows, in words: the columns that differ most, in standard deviations. */
  function inWords(node) {
    const from = model.first[node], to = model.last[node];
    const found = heat.columns.map((name, j) => {
      if (!heat.levels[j]) {
        const mean = heat.meanScore(from, to, j);
        return { size: Math.abs(mean) || 0, text: `${mean > 0 ? "high" : "low"} ${name} (${mean > 0 ? "+" : "−"}${Math.abs(mean).toFixed(1)})` };
      }
      const all = allShares[j], own = heat.shares(from, to, j);
      const gain = own.map((share, k) => (share - all[k]) / (Math.sqrt(all[k] * (1 - all[k])) || Infinity));
      const k = gain.indexOf(Math.max(...gain));
      return { size: gain[k], text: `${name} ${percent(own[k])} ${heat.levels[j][k]} (of all rows ${percent(all[k])})` };
    });
    const strong = found.filter((item) => item.size >= 0.5).sort((a, b) => b.size - a.size);
    return strong.slice(0, 4).map((item) => item.text).join(", ") || (node === ROOT ? "all rows" : "like all rows");
  }

  function fillTable() {
    const columns = ["cluster", "rows", "expected overlap", "merged at"];
    if (heat) columns.push("what it is");
    columns.push("members", "");
    const numeric = new Set(["rows", "expected overlap", "merged at"]);
    find("thead").replaceChildren(element("tr", {}, ...columns.map((name) =>
      element("th", { scope: "col", class: numeric.has(name) ? "number" : null, text: name }))));
    const value = (text, second) => element("td", { class: "number" },
      element("span", {}, text, ...(second ? [element("span", { class: "second", text: second })] : [])));
    const colour = colours(model);
    const heads = now.heads.map((head, i) => ({ head, i, rows: now.counts[i] }));
    heads.sort((a, b) => b.rows - a.rows || a.i - b.i);
    const rows = heads.slice(0, MOST_ROWS).map(({ head, i, rows: count }) => {
      const k = head - n;
      const swatch = element("span", { class: "swatch" });
      swatch.style.background = colour.cluster(i);
      const names = members(model, head, 4).map((leaf) => clip(model.names[leaf], 40)).join(", ") + (count > 4 ? ", …" : "");
      const button = element("button", { type: "button", "aria-label": `Show cluster ${i} in the tree`, text: "Show" });
      button.addEventListener("click", () => {
        if (!large || head < n) focusOn(head);
        zoomToNode(head);
      });
      const cells = [
        element("th", { scope: "row" }, swatch, String(i)),
        element("td", { class: "number", text: count.toLocaleString("en") }),
        value(k < 0 || !model.overlap ? "–" : percent(model.overlap[k]), k >= 0 && model.exact && model.exact[k] >= SAID ? `exactly: ${percent(model.exact[k])}` : ""),
        value(k < 0 ? "–" : short(model.times[k]), k < 0 || !Number.isFinite(model.low[k]) ? "" : `${short(model.low[k])}–${short(model.high[k])}`),
      ];
      if (heat) cells.push(element("td", { class: "words", text: inWords(head) }));
      cells.push(element("td", { class: "wide", text: names }), element("td", {}, button));
      cells.forEach((cell, c) => { if (c && columns[c]) cell.dataset.label = columns[c]; });
      return element("tr", { "data-cluster": i }, ...cells);
    });
    find("table.clusters tbody").replaceChildren(...rows);
    find("table.clusters caption").textContent = now.k > MOST_ROWS
      ? `The ${MOST_ROWS} largest of ${now.k} clusters. The button above saves the cluster of every row.`
      : `${now.k === 1 ? "One cluster" : `${now.k} clusters`}, the largest first. Expected overlap: how much of the cluster and of the most similar branch of the true tree is in both (Jaccard index)${model.exact ? "; exactly: the probability, if it is 5% or more, that just these rows form a branch, which one row in doubt makes small" : ""}. Merged at: with its ${percent(model.level)} interval. What it is: standard deviations from the mean of all rows, and shares.`;
  }

  function downloadLabels() {
    // As in labels.csv: what a spreadsheet would run as a formula begins with '.
    const safe = (text) => (/^'*([=@\t\r]|[+-](?!-*$|\.?\d[\d.,]*([eE][+-]?\d+)?$))/.test(text) ? `'${text}` : text);
    const quote = (text) => (/[",\r\n]/.test(safe(text)) ? `"${safe(text).replace(/"/g, '""')}"` : safe(text));
    const lines = model.names.map((name, leaf) => `${quote(name)},${now.labels[leaf]}`);
    const file = new Blob([`id,cluster\n${lines.join("\n")}\n`], { type: "text/csv" });
    const link = element("a", { href: URL.createObjectURL(file), download: `labels_${now.k}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // ---- events

  const point = (event) => {
    const frame = canvas.getBoundingClientRect();
    return { px: event.clientX - frame.left, py: event.clientY - frame.top };
  };
  let drag = null;
  canvas.addEventListener("pointermove", (event) => {
    const at = point(event);
    if (drag) {
      const span = view.to - view.from;
      drag.moved ||= Math.abs(at.py - drag.py) > 3;
      if (drag.moved && span < count()) {
        canvas.classList.add("dragging");
        moveTo(drag.from - (at.py - drag.py) / leafHeight(), span);
      }
      return;
    }
    const node = nodeAt(at.px, at.py);
    if (node !== hovered || at.px > box.right) {
      hovered = node;
      showDetail(at);
      requestDraw();
    }
  });
  canvas.addEventListener("pointerleave", () => { hovered = -1; showDetail(); requestDraw(); });
  canvas.addEventListener("pointerdown", (event) => {
    drag = { ...point(event), from: view.from, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", (event) => {
    const at = point(event);
    if (drag && !drag.moved) {
      const node = nodeAt(at.px, at.py);
      if (layout.isClosed(node)) open(node);
      else if (node >= 0) focusOn(node);
    }
    drag = null;
    canvas.classList.remove("dragging");
  });
  canvas.addEventListener("dblclick", (event) => {
    const at = point(event);
    const node = nodeAt(at.px, at.py);
    if (node >= 0) zoomToNode(node);
  });
  canvas.addEventListener("wheel", (event) => {
    if (!(event.ctrlKey || event.metaKey || document.activeElement === canvas)) return;
    const factor = Math.exp(Math.sign(event.deltaY || event.deltaX) * 0.2);
    const latest = endOf(layout.root);
    if (factor > 1 && view.to - view.from >= count() && view.time >= latest) return; // nothing left: let the page scroll
    event.preventDefault();
    if (event.shiftKey) {
      view.time = Math.min(Math.max(view.time * factor, positive), latest * 1.3);
      requestDraw();
    } else {
      const { py } = point(event);
      zoom(factor, view.from + ((py - box.top) / (box.bottom - box.top)) * (view.to - view.from));
    }
  }, { passive: false });

  const KEYS = {
    ArrowLeft: () => {
      if (focused === layout.root && trail.length > 1) backTo(trail.length - 2);
      else focusOn(focused < 0 || focused === layout.root ? layout.root : layout.parent(focused));
    },
    ArrowRight: () => {
      if (layout.isClosed(focused)) open(focused);
      else focusOn(focused < 0 ? layout.root : focused < n ? focused : upper(focused));
    },
    ArrowUp: () => focusOn(neighbour(-1)),
    ArrowDown: () => focusOn(neighbour(1)),
    Enter: () => focused >= n && zoomToNode(focused),
    Escape: back,
    Home: wholeTree,
    "+": () => zoom(0.7),
    "=": () => zoom(0.7),
    "-": () => zoom(1 / 0.7),
    PageUp: () => moveTo(view.from - 0.8 * (view.to - view.from), view.to - view.from),
    PageDown: () => moveTo(view.from + 0.8 * (view.to - view.from), view.to - view.from),
  };
  const upper = (node) => {
    const k = node - n, a = children[2 * k], b = children[2 * k + 1];
    return place[a] < place[b] ? a : b;
  };
  /** The branch above or below this one: the other side of a merge, else that of the nearest merge that has one. */
  function neighbour(direction) {
    if (focused < 0) return layout.root;
    const edge = direction < 0 ? first[focused] - 1 : last[focused] + 1;
    if (edge < 0 || edge >= count()) return focused;
    let node = layout.tips[edge];
    for (;;) {
      const up = layout.parent(node);
      if (up < 0 || nodeTime[up] > nodeTime[focused] || (direction < 0 ? last[up] : first[up]) !== edge) return node;
      node = up;
    }
  }
  canvas.addEventListener("keydown", (event) => {
    const action = KEYS[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });

  slider.min = 1;
  slider.max = Math.min(model.splits.length + 1, Math.max(40, 2 * model.chosen));
  number.max = model.splits.length + 1;
  slider.addEventListener("input", () => setCut(Number(slider.value)));
  number.addEventListener("change", () => setCut(Number(number.value)));
  find(".chosen").addEventListener("click", () => setCut(model.chosen));
  scale.addEventListener("change", wholeView);
  tipsShown.addEventListener("change", relay);
  tipsShown.parentElement.hidden = !large;
  find(".zoom-in").addEventListener("click", () => zoom(0.6));
  find(".zoom-out").addEventListener("click", () => zoom(1 / 0.6));
  find(".whole").addEventListener("click", wholeTree);
  find(".download").addEventListener("click", downloadLabels);
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    const leaf = wanted ? model.names.findIndex((name) => name.toLowerCase().includes(wanted)) : -1;
    search.setCustomValidity(wanted && leaf < 0 ? "No row has this in its name." : "");
    search.reportValidity();
    if (leaf < 0) return;
    focusOn(leaf);
    if (leafHeight() < 9) moveTo(place[leaf] - 15, Math.min(30, count()));
  });

  const legend = find(".legend");
  function drawLegend() {
    const high = colours(model).dark ? "bright" : "dark";
    const text = [
      model.overlap ? `Dots: expected overlap in per cent, ${high} is high. Bars: intervals of merge times.` : "No overlaps: there is one tree only.",
      "Dashed line: the cut.",
      large ? "Triangles: closed clades" + (model.overlap ? "; pale and dashed: expected overlap below 50%." : ".") : "",
    ].join(" ");
    const parts = [element("span", { text })];
    if (heat) {
      const bar = element("span", { class: "bar" });
      const paint = heatRamp(colours(model));
      bar.style.background = `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map((s) => `rgb(${paint(s)})`)})`;
      parts.push(element("span", {}, `${large ? "Data (closed clades: means)" : "Data"}, in standard deviations from the column's mean: −${heat.limit}`, bar, `+${heat.limit}`));
    }
    legend.replaceChildren(...parts);
  }

  canvas.setAttribute("aria-label", `Dendrogram of ${n} rows`);
  scale.value = n > 40 ? "sqrt" : "linear";
  drawLegend();
  setCut(model.chosen);
  new ResizeObserver(requestDraw).observe(canvas.parentElement);
  onRecolour(() => { drawLegend(); fillTable(); requestDraw(); });
});
