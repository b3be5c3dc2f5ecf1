#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/strings.h"
#include "report/charts.h"
#include "report/key_figures.h"

namespace ingot::report {

namespace {

constexpr const char* page_style =
    "*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}"
    "main{max-width:1080px;margin:0 auto;padding:20px 16px 60px}"
    "h1{font-size:24px;margin:8px 0 2px;overflow-wrap:anywhere}h2{font-size:18px;margin:34px 0 10px}"
    "h3{font-size:15px;margin:0 0 6px}p{margin:0 0 10px}.muted{color:var(--muted)}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:10px;margin:16px 0}"
    ".tile,.panel{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:12px 14px}"
    ".tile b{display:block;font-size:20px;font-weight:600}.tile span{color:var(--muted);font-size:13px}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:12px}"
    ".panel{margin:0 0 12px;min-width:0}.charts .panel{margin:0}.chart{display:block;width:100%;height:auto}"
    ".narrow{display:none}@media(max-width:640px){.narrow{display:block}.wide{display:none}}"
    ".key{display:inline-block;width:14px;height:4px;border-radius:2px;background:var(--c);margin-right:7px;"
    "vertical-align:middle}.keys span{margin-right:18px;white-space:nowrap}"
    ".keys{position:sticky;top:0;z-index:1;padding:6px 0;background:var(--paper)}"  // stays visible when scrolling
    ".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;padding:6px 14px 6px 0;border-bottom:1px solid var(--rule);vertical-align:top}"
    "thead th{white-space:nowrap}tbody th{font-weight:400;color:var(--muted)}"
    ".pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr));gap:16px;margin-top:8px}"
    ".text{white-space:pre-wrap;overflow-wrap:anywhere;margin:4px 0 0}.prompt{color:var(--muted)}"
    "pre{overflow-x:auto;margin:10px 0 0;font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}"
    "summary{cursor:pointer}details{margin:0 0 10px}";

std::string number(double value, int decimals) {
  if (!std::isfinite(value)) return "-";
  return fmt::format("{:.{}f}", value, std::abs(value) < 1000 ? decimals : 0);
}

std::string bytes(double value) {
  return std::isfinite(value) ? format_bytes(static_cast<uint64_t>(value)) : std::string("-");
}

std::string share(double value) { return std::isfinite(value) ? fmt::format("{:.1f} %", value * 100) : "-"; }

std::string duration(double seconds) { return std::isfinite(seconds) ? format_duration(seconds) : "-"; }

std::string change(double before, double after, int decimals) {
  if (!std::isfinite(before)) return "-";
  return number(before, decimals) + " \xE2\x86\x92 " + number(after, decimals);  // an arrow
}

struct Row {
  const char* name;
  std::function<std::string(const RunLog&, const KeyFigures&)> value;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"progress", [](const RunLog& r, const KeyFigures&) { return progress_of(r); }},
      {"training loss, first and last step",
       [](const RunLog&, const KeyFigures& f) { return change(f.first_loss, f.final_loss, 4); }},
      {"held-out loss, before and after",
       [](const RunLog&, const KeyFigures& f) { return change(f.eval_loss_before, f.eval_loss_after, 4); }},
      {"held-out perplexity, before and after",
       [](const RunLog&, const KeyFigures& f) { return change(f.perplexity_before, f.perplexity_after, 2); }},
      {"best held-out perplexity", [](const RunLog&, const KeyFigures& f) { return number(f.best_perplexity, 2); }},
      {"tokens trained on",
       [](const RunLog& r, const KeyFigures&) { return format_count(static_cast<double>(r.num_tokens)); }},
      {"padding beside them", [](const RunLog&, const KeyFigures& f) { return share(f.padding); }},
      {"time", [](const RunLog&, const KeyFigures& f) { return duration(f.seconds); }},
      {"mean tokens/s", [](const RunLog&, const KeyFigures& f) { return number(f.tokens_per_s, 0); }},
      {"mean MFU (causal FLOPs)", [](const RunLog&, const KeyFigures& f) { return share(f.mfu); }},
      {"peak memory", [](const RunLog&, const KeyFigures& f) { return bytes(f.peak_memory); }},
      {"steps skipped (gradient not finite)",
       [](const RunLog& r, const KeyFigures&) { return fmt::format("{}", r.num_skipped); }},
      {"parameters, and how many are trained",
       [](const RunLog& r, const KeyFigures&) {
         return fmt::format("{}, {}", format_count(static_cast<double>(r.parameters)),
                            format_count(static_cast<double>(r.trainable)));
       }},
      {"device", [](const RunLog& r, const KeyFigures&) { return r.device.empty() ? "-" : r.device; }},
      {"precision", [](const RunLog& r, const KeyFigures&) { return r.precision.empty() ? "-" : r.precision; }},
      {"folder", [](const RunLog& r, const KeyFigures&) { return r.folder.string(); }},
  };
  return all;
}

std::string table(std::span<const RunLog> runs, std::span<const std::string> labels) {
  std::string html = "<div class=\"panel scroll\"><table>";
  if (runs.size() > 1) {
    html += "<thead><tr><th></th>";
    for (size_t r = 0; r < runs.size(); ++r) {
      html += fmt::format("<th><i class=\"key c{}\"></i>{}</th>", r % num_colors, escape(labels[r]));
    }
    html += "</tr></thead>";
  }
  html += "<tbody>";
  std::vector<KeyFigures> figures;
  for (const RunLog& run : runs) figures.push_back(key_figures_of(run));
  for (const Row& row : rows()) {
    html += fmt::format("<tr><th>{}</th>", escape(row.name));
    for (size_t r = 0; r < runs.size(); ++r) html += "<td>" + escape(row.value(runs[r], figures[r])) + "</td>";
    html += "</tr>";
  }
  return html + "</tbody></table></div>";
}

std::string tiles(const RunLog& run) {
  const KeyFigures figures = key_figures_of(run);
  const auto tile = [](const std::string& value, const char* name) {
    return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>", escape(value), escape(name));
  };
  std::string html = "<div class=\"tiles\">";
  if (std::isfinite(figures.perplexity_before)) {
    html += tile(change(figures.perplexity_before, figures.perplexity_after, 2), "held-out perplexity");
  }
  html += tile(number(figures.final_loss, 3), "training loss of the last step");
  html += tile(format_count(static_cast<double>(run.num_tokens)), "tokens");
  html += tile(duration(figures.seconds), "time");
  html += tile(number(figures.tokens_per_s, 0), "tokens/s");
  html += tile(bytes(figures.peak_memory), "peak memory");
  return html + "</div>";
}

std::string panel(const Chart& chart) {
  return fmt::format("<section class=\"panel\"><h3>{}</h3>{}</section>", escape(chart.title),
                     chart_svg(chart, 500, 260));
}

// The first and the last sample of each prompt.
std::string samples(const RunLog& run) {
  std::vector<std::string> prompts;
  for (const Sample& sample : run.samples) {
    if (std::find(prompts.begin(), prompts.end(), sample.prompt) == prompts.end()) prompts.push_back(sample.prompt);
  }
  std::string html;
  for (const std::string& prompt : prompts) {
    const auto is_of = [&](const Sample& sample) { return sample.prompt == prompt; };
    const auto first = std::find_if(run.samples.begin(), run.samples.end(), is_of);
    const auto last = std::find_if(run.samples.rbegin(), run.samples.rend(), is_of);
    const auto one = [&](const Sample& sample) {
      std::string_view text = sample.text;
      if (text.starts_with(prompt)) text.remove_prefix(prompt.size());
      const std::string when = sample.step == 0 ? std::string("before training") : fmt::format("step {}", sample.step);
      return fmt::format("<div><h3>{}</h3><p class=\"text\"><span class=\"prompt\">{}</span>{}</p></div>", when,
                         escape(prompt), escape(text));
    };
    html += "<section class=\"panel\"><div class=\"pair\">" + one(*first);
    if (last->step != first->step) html += one(*last);
    html += "</div></section>";
  }
  return html;
}

// Samples, warnings and the recipe of one run.
std::string words(const RunLog& run, const std::string& label, bool titled) {
  std::string html;
  if (titled) html += fmt::format("<h2>{}</h2>", escape(label));
  if (!run.samples.empty()) html += (titled ? "" : "<h2>Samples</h2>") + samples(run);
  if (!titled) html += "<h2>Run</h2>";
  if (run.num_unread_lines > 0) {
    html += fmt::format(
        "<p class=\"muted\">{} line(s) of events.jsonl could not be read and were skipped; a killed run leaves an "
        "incomplete last line.</p>",
        run.num_unread_lines);
  }
  if (!run.warnings.empty()) {
    html += fmt::format("<details><summary>{} warning(s)</summary><pre>", run.warnings.size());
    for (const std::string& warning : run.warnings) html += escape(warning) + "\n";
    html += "</pre></details>";
  }
  if (!run.recipe.empty()) {
    html += "<details><summary>Recipe, fully resolved</summary><pre>" + escape(run.recipe) + "</pre></details>";
  } else {
    html += "<p class=\"muted\">There is no recipe.yaml in the run folder.</p>";
  }
  return html;
}

}  // namespace

std::string page(std::span<const RunLog> runs) {
  const std::vector<std::string> labels = labels_of(runs);
  const std::string title = runs.size() == 1 ? labels[0] : fmt::format("{} runs", runs.size());
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<meta name=\"color-scheme\" content=\"light dark\"><title>{} - Ingot report</title><style>{}{}</style></head>"
      "<body><main><p class=\"muted\">Ingot training report</p><h1>{}</h1>",
      escape(title), chart_style(), page_style, escape(title));
  if (runs.size() == 1) {
    html += fmt::format("<p class=\"muted\">{}</p>", escape(progress_of(runs[0]))) + tiles(runs[0]);
  } else {
    html += "<p class=\"keys\">";
    for (size_t r = 0; r < runs.size(); ++r) {
      html += fmt::format("<span><i class=\"key c{}\"></i>{}</span> ", r % num_colors, escape(labels[r]));
    }
    html += "</p>";
  }
  const Chart loss = loss_chart(runs);
  html += "<section class=\"panel\"><h3>Loss</h3><div class=\"wide\">" + chart_svg(loss, 1020, 380) +
          "</div><div class=\"narrow\">" + chart_svg(loss, 460, 290) + "</div></section><div class=\"charts\">";
  for (const Chart& chart : other_charts(runs)) html += panel(chart);
  html += "</div><h2>Key facts</h2>" + table(runs, labels);
  for (size_t r = 0; r < runs.size(); ++r) html += words(runs[r], labels[r], runs.size() > 1);
  return html + "</main></body></html>\n";
}

}  // namespace ingot::report
