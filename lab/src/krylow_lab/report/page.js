// Draws the charts, and keeps charts that offer the same choice on the same option.
(() => {
  "use strict";
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const figures = [...document.querySelectorAll(".chart")];
  const chosen = {}; // what the reader chose last, by the choice's name
  // No button that sends anything anywhere: what is shown stays in this file.
  const buttons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];
  const config = { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "", modeBarButtons: buttons };

  const options = (variants, name) => [...new Set(variants.map((variant) => variant.choice[name]))];

  // The variant nearest to what was chosen: the first choices count most.
  function pick(chart) {
    let left = chart.variants;
    for (const name of chart.choices) {
      const open = options(left, name);
      const option = open.includes(chosen[name]) ? chosen[name] : open[0];
      left = left.filter((variant) => variant.choice[name] === option);
    }
    return left[0];
  }

  function fill(figure, chart, variant) {
    let left = chart.variants;
    for (const select of figure.querySelectorAll("select")) {
      const name = select.dataset.choice;
      select.replaceChildren(...options(left, name).map((text) => new Option(text, text)));
      select.value = variant.choice[name];
      left = left.filter((one) => one.choice[name] === select.value);
    }
  }

  // Beside the plot there is room for a legend on a wide screen only.
  function fitted(layout, entries, width, key) {
    const narrow = width < 640;
    const fit = structuredClone(layout);
    fit.uirevision = key;
    fit.legend = { ...fit.legend, uirevision: "kept" };
    if (narrow) {
      Object.assign(fit.legend, { orientation: "h", x: 0, xanchor: "left", y: -0.18, yanchor: "top", maxheight: 1000 });
      fit.legend.font = { size: 11 };
      fit.margin = { ...fit.margin, l: Math.min(fit.margin.l, 44), r: 6, t: Math.min(fit.margin.t, 12) };
      const base = Math.min(layout.height, 400);
      fit.height = entries > 1 ? base + 24 * entries : Math.min(layout.height, 340);
    }
    return fit;
  }

  function draw(figure) {
    const chart = charts[figure.dataset.chart];
    const variant = pick(chart);
    const plot = figure.querySelector(".plot");
    fill(figure, chart, variant);
    const titles = new Set(variant.data.map((trace) => trace.legendgrouptitle && trace.legendgroup).filter(Boolean));
    const entries = variant.data.filter((trace) => trace.showlegend !== false).length + titles.size;
    const layout = fitted(variant.layout, entries, figure.clientWidth, JSON.stringify(variant.choice));
    const hover = window.matchMedia("(hover: hover)").matches;
    Plotly.react(plot, structuredClone(variant.data), layout, { ...config, displayModeBar: hover ? "hover" : false });
  }

  for (const figure of figures) {
    figure.addEventListener("change", (event) => {
      const name = event.target.dataset.choice;
      chosen[name] = event.target.value;
      figures.filter((other) => charts[other.dataset.chart].choices.includes(name)).forEach(draw);
    });
  }
  let wide = null;
  function drawAll() {
    const now = document.documentElement.clientWidth;
    if (now === wide) return;
    wide = now;
    figures.forEach(draw);
  }
  window.addEventListener("resize", drawAll);
  drawAll();
})();
