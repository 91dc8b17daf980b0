// Draws the graph, its lowest frequencies and a filtered signal from the data that the page holds.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (selector) => document.querySelector(selector);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // Arrays are little-endian bytes in base64; a quantised one is whole numbers times its scale.
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const values = (packed) => Float32Array.from(new Int16Array(bytes(packed.bytes)), (v) => v * packed.scale);
  const points = new Uint16Array(bytes(data.points)); // x, y, x, y, ...
  const edges = new Uint16Array(bytes(data.edges)); // x, y of one end, x, y of the other
  const U = data.basis.map(values);
  const signals = data.signals.map((signal) => ({ ...signal, x: values(signal.values) }));
  const n = points.length / 2;
  const all = data.values.length;
  const state = { k: data.start, cutoff: null, signal: 0, first: 0 };

  for (const place of document.querySelectorAll("[data-text]")) {
    const text = data.text[place.dataset.text];
    place.textContent = text || "";
    place.hidden = !text;
  }
  document.title = `${data.text.title}: krylow view`;

  function number(v) {
    if (!Number.isFinite(v)) return "unknown";
    if (v === 0) return "0";
    const size = Math.abs(v);
    return size >= 1e5 || size < 1e-3 ? v.toExponential(1).replace("e+", "e").replace(".0", "").replaceAll("-", "−") : String(Number(v.toPrecision(3))).replace("-", "−");
  }

  // Colours: from low to high, and around zero.
  const ramps = {
    light: { low: ["#3b2a7e", "#2f6aa8", "#1f9e89", "#7ac04b", "#e2c500"], zero: ["#0b4f9c", "#5d9bd8", "#c3cad2", "#e58b62", "#a3290f"] },
    dark: { low: ["#6b57c2", "#3f86c4", "#2bab97", "#8ccc5e", "#f7e463"], zero: ["#62b0ff", "#33659b", "#4d5864", "#a85a35", "#ff9d6b"] },
  };
  const ramp = (kind) => ramps[dark.matches ? "dark" : "light"][kind];
  function table(stops) {
    const parts = stops.map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));
    return Array.from({ length: 64 }, (_, i) => {
      const at = (i / 63) * (stops.length - 1);
      const j = Math.min(Math.floor(at), stops.length - 2);
      return `rgb(${parts[j].map((c, p) => Math.round(c + (at - j) * (parts[j + 1][p] - c))).join(",")})`;
    });
  }

  // One graph on a canvas; x are the values of the nodes, between low and high.
  function draw(canvas, x, low, high, kind) {
    const side = canvas.clientWidth;
    const scale = Math.min(window.devicePixelRatio || 1, 3);
    if (!side) return;
    if (canvas.width !== Math.round(side * scale)) canvas.width = canvas.height = Math.round(side * scale);
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, side, side);
    const r = Math.max(1, Math.min(side / 60, 0.25 * side / Math.sqrt(n)));
    const margin = r + 3;
    const at = (v) => margin + (v / 65535) * (side - 2 * margin);
    context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--edge");
    context.lineWidth = edges.length > 6000 ? 0.5 : 1;
    context.beginPath();
    for (let i = 0; i < edges.length; i += 4) {
      context.moveTo(at(edges[i]), side - at(edges[i + 1]));
      context.lineTo(at(edges[i + 2]), side - at(edges[i + 3]));
    }
    context.stroke();
    const colors = table(ramp(kind));
    const width = high - low || 1;
    const order = kind === "zero" ? Array.from(x.keys()).sort((a, b) => Math.abs(x[a]) - Math.abs(x[b])) : x.keys();
    for (const i of order) {
      const level = Math.max(0, Math.min(63, Math.round((63 * (x[i] - low)) / width)));
      context.fillStyle = colors[level];
      context.beginPath();
      context.arc(at(points[2 * i]), side - at(points[2 * i + 1]), r, 0, 2 * Math.PI);
      context.fill();
    }
    canvas.shown = { x, at: (i) => [at(points[2 * i]), side - at(points[2 * i + 1])] };
  }

  function filtered(signal, k) {
    const y = new Float32Array(n);
    for (let i = 0; i < k; i++) {
      const c = signal.coefficients[i];
      for (let v = 0; v < n; v++) y[v] += c * U[i][v];
    }
    return y;
  }

  function drawSignal() {
    const signal = signals[state.signal];
    const y = filtered(signal, state.k);
    draw($("#before"), signal.x, signal.low, signal.high, "low");
    draw($("#after"), y, signal.low, signal.high, "low");
    const [from, to] = document.querySelectorAll(".scale span");
    from.textContent = number(signal.low);
    to.textContent = number(signal.high);
    $(".scale i").style.background = `linear-gradient(to right, ${ramp("low").join(",")})`;
    const kept = signal.coefficients.slice(0, state.k).reduce((sum, c) => sum + c * c, 0);
    const share = signal.energy > 0 ? Math.min(1, kept / signal.energy) : 0;
    const percent = (v) => `${(100 * v).toFixed(1)} %`;
    const count = state.k === 1 ? "The lowest frequency" : `The ${state.k} lowest frequencies`;
    const text = state.k === 0
      ? "No frequency is below this cutoff: nothing of the signal is kept."
      : `${count} of ${data.n.toLocaleString("en")} ${state.k === 1 ? "holds" : "hold"} ${percent(share)} of the signal's energy; the filter removes ${percent(1 - share)}.`;
    $("#effect").textContent = text;
    $("#before").setAttribute("aria-label", `The graph, coloured by ${signal.name}`);
    $("#after").setAttribute("aria-label", `The graph, coloured by the filtered signal. ${text}`);
  }

  // Charts.
  const svg = (name, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  function ticks(low, high, count) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const marks = [];
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + 1e-9 * step; v += step) marks.push(Math.abs(v) < step / 1e6 ? 0 : v);
    return marks;
  }
  function chart(place, xs, ys, titles, label) {
    const width = place.clientWidth;
    const [left, right, top, bottom] = [46, 8, 10, 34];
    const height = 210;
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": titles.about });
    const X = (v) => left + ((v - xs[0]) / (xs[1] - xs[0] || 1)) * (width - left - right);
    const Y = (v) => height - bottom - ((v - ys[0]) / (ys[1] - ys[0] || 1)) * (height - top - bottom);
    for (const v of ticks(ys[0], ys[1], 4)) {
      root.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: Y(v), y2: Y(v) }));
      const text = svg("text", { x: left - 6, y: Y(v) + 4, "text-anchor": "end" });
      text.textContent = label ? label(v) : number(v);
      root.append(text);
    }
    for (const v of ticks(xs[0], xs[1], Math.max(2, Math.floor(width / 80)))) {
      if (titles.whole && !Number.isInteger(v)) continue;
      const text = svg("text", { x: X(v), y: height - bottom + 16, "text-anchor": "middle" });
      text.textContent = number(v);
      root.append(text);
    }
    const title = svg("text", { x: (left + width - right) / 2, y: height - 2, "text-anchor": "middle" });
    title.textContent = titles.x;
    root.append(title);
    place.replaceChildren(root);
    return { root, X, Y };
  }
  const named = (node, text) => {
    const title = svg("title", {});
    title.textContent = text;
    node.append(title);
    return node;
  };

  function drawSpectrum() {
    const most = data.values[all - 1] || 1;
    const line = chart($("#values"), [0.5, all + 0.5], [0, most * 1.05], { x: "number i", about: "The lowest eigenvalues", whole: true });
    if (state.cutoff !== null) line.root.append(svg("line", { class: "cut", x1: line.X(0.5), x2: line.X(all + 0.5), y1: line.Y(state.cutoff), y2: line.Y(state.cutoff) }));
    data.values.forEach((value, i) => {
      const dot = svg("circle", { class: i < state.k ? "kept" : "dropped", cx: line.X(i + 1), cy: line.Y(value), r: all > 60 ? 2.5 : 4 });
      line.root.append(named(dot, `λ${i + 1} = ${number(value)}`));
    });
    const signal = signals[state.signal];
    const logs = signal.coefficients.map((c) => Math.log10(Math.max((c * c) / (signal.energy || 1), 1e-8)));
    const floor = Math.max(-8, Math.floor(Math.min(...logs)));
    const bars = chart($("#energy"), [0.5, all + 0.5], [floor, 0], { x: "number i", about: "Energy of the signal by frequency", whole: true }, (v) => (Number.isInteger(v) ? `${number(100 * 10 ** v)} %` : ""));
    const width = Math.max(1, (bars.X(2) - bars.X(1)) * 0.7);
    logs.forEach((value, i) => {
      const top = bars.Y(Math.max(value, floor));
      const bar = svg("rect", { class: i < state.k ? "kept" : "dropped", x: bars.X(i + 1) - width / 2, width, y: top, height: bars.Y(floor) - top });
      bars.root.append(named(bar, `λ${i + 1} = ${number(data.values[i])}: ${number(100 * 10 ** value)} %`));
    });
        const { x, y } = data.density;
    const peak = Math.max(...y);
    const curve = chart($("#density"), [Math.min(0, x[0]), x[x.length - 1]], [0, peak * 1.05], { x: "frequency λ", about: "Density of all frequencies" });
    const path = x.map((v, i) => `${i ? "L" : "M"}${curve.X(v).toFixed(1)},${curve.Y(y[i]).toFixed(1)}`).join("");
    curve.root.append(svg("path", { class: "under", d: `${path}L${curve.X(x[x.length - 1])},${curve.Y(0)}L${curve.X(x[0])},${curve.Y(0)}Z` }));
    curve.root.append(svg("path", { class: "curve", d: path }));
    const cut = state.cutoff === null ? data.values[Math.max(state.k, 1) - 1] : state.cutoff;
    curve.root.append(svg("line", { class: "cut", x1: curve.X(cut), x2: curve.X(cut), y1: curve.Y(0), y2: curve.Y(peak) }));
  }

  // Small pictures of the frequencies.
  const shown = Math.min(8, all);
  for (let i = 0; i < shown; i++) {
    const figure = document.createElement("figure");
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    figure.append(canvas, document.createElement("figcaption"));
    $(".grid").append(figure);
  }
  function drawFrequencies() {
    document.querySelectorAll(".grid figure").forEach((figure, place) => {
      const i = state.first + place;
      figure.style.visibility = i < all ? "visible" : "hidden";
      if (i >= all) return;
      const most = U[i].reduce((a, v) => Math.max(a, Math.abs(v)), 0);
      draw(figure.firstChild, U[i], -most, most, "zero");
      figure.firstChild.setAttribute("aria-label", `The graph, coloured by frequency ${i + 1}`);
      figure.lastChild.textContent = `${i + 1}: λ = ${number(data.values[i])}`;
    });
    $(".pager").hidden = all <= shown;
    $(".pager span").textContent = `${state.first + 1} to ${Math.min(state.first + shown, all)} of ${all}`;
    $("#earlier").disabled = state.first === 0;
    $("#later").disabled = state.first + shown >= all;
  }
  for (const [name, step] of [["#earlier", -shown], ["#later", shown]])
    $(name).addEventListener("click", () => { state.first = Math.max(0, state.first + step); drawFrequencies(); });

  // Controls: k and the cutoff say the same in two ways.
  const top = 1.02 * data.values[all - 1] || 1;
  function show() {
    const shownCutoff = state.cutoff === null ? (state.k ? data.values[state.k - 1] : 0) : state.cutoff;
    $("#k").value = state.k;
    $("#cutoff").value = Math.round((1000 * shownCutoff) / top);
    $("output[for=k]").textContent = `${state.k} of ${all}`;
    $("output[for=cutoff]").textContent = number(shownCutoff);
    drawSignal();
    drawSpectrum();
  }
  $("#k").max = all;
  $("#k").addEventListener("input", (event) => { state.k = Number(event.target.value); state.cutoff = null; show(); });
  $("#cutoff").addEventListener("input", (event) => {
    state.cutoff = (top * Number(event.target.value)) / 1000;
    state.k = data.values.filter((value) => value <= state.cutoff).length;
    show();
  });
  const select = $("#choice select");
  select.replaceChildren(...signals.map((signal, i) => new Option(signal.name, i)));
  $("#choice").hidden = signals.length < 2;
  select.addEventListener("change", () => { state.signal = Number(select.value); show(); });

  $(".status").textContent = data.certificate.title;
  $(".status").classList.toggle("good", data.certificate.good);
  for (const sentence of data.certificate.sentences) {
    const item = document.createElement("li");
    item.textContent = sentence;
    $("#certificate ul").append(item);
  }

  // What a node is called, and its value, under the pointer.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  document.addEventListener("pointermove", (event) => {
    const picture = event.target.shown;
    tip.hidden = true;
    if (!picture) return;
    const box = event.target.getBoundingClientRect();
    let [best, least] = [-1, 144];
    for (let i = 0; i < n; i++) {
      const [x, y] = picture.at(i);
      const far = (x - event.clientX + box.left) ** 2 + (y - event.clientY + box.top) ** 2;
      if (far < least) [best, least] = [i, far];
    }
    if (best < 0) return;
    tip.textContent = `${data.names[best]}: ${number(picture.x[best])}`;
    tip.hidden = false;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, window.innerWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(4, event.clientY - 32)}px`;
  });

  function drawAll() { show(); drawFrequencies(); }
  let wide = 0;
  window.addEventListener("resize", () => {
    if (wide === window.innerWidth) return;
    wide = window.innerWidth;
    drawAll();
  });
  dark.addEventListener("change", drawAll);
  drawAll();
})();
