// Changes of Sphinx's search, which loads this code after its own (`html_search_scorer`).

// Sphinx's scores, and differences between the parts of the site: pages that answer a question go before
// pages for contributors with the same words.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , score]) => {
    if (/^(guides|tutorials|getting_started)\/(?!index)/.test(page)) return score + 3;
    if (/^(internals\/|architecture$|engine_cases$)/.test(page)) return score - 12;
    return score;
  },
};

// Sphinx compares the whole question with titles and with the words of the pages' headers. Without words
// such as "how to" and "a", "how to save a model" is "save model".
{
  const small = new Set("a an can could do does i in is how keras my of the to use using with".split(" "));
  const reduced = (text) => {
    const words = text.trim().split(/\s+/);
    const kept = words.filter((word) => !small.has(word.toLowerCase()));
    return kept.length ? kept.join(" ") : text;
  };
  const { _parseQuery, setIndex } = Search;
  Search._parseQuery = (question) => _parseQuery(reduced(question));
  Search.setIndex = (index) => {
    const entries = {};
    for (const [entry, pages] of Object.entries(index.indexentries))
      entries[reduced(entry)] = [...(entries[reduced(entry)] ?? []), ...pages];
    setIndex({ ...index, indexentries: entries });
  };
}
