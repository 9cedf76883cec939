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
  const { _parseQuery, _performSearch, performTermsSearch, setIndex } = Search;
  let entries = []; // for each entry of the headers: `[stems of its words, numbers of its pages]`
  Search._parseQuery = (question) => _parseQuery(reduced(question));
  Search.setIndex = (index) => {
    const indexentries = {};
    for (const [entry, pages] of Object.entries(index.indexentries))
      indexentries[reduced(entry)] = [...(indexentries[reduced(entry)] ?? []), ...pages];
    entries = Object.entries(index.indexentries).map(([entry, pages]) => {
      return [_parseQuery(entry)[1], pages.map(([page]) => page)];
    });
    setIndex({ ...index, indexentries });
  };
  // the pages with a word, or with the longest part of a misspelled word, from its beginning
  const withWord = (word, excluded) => {
    for (let length = word.length; length >= Math.min(4, word.length); length--) {
      const results = performTermsSearch(new Set([word.slice(0, length)]), excluded);
      if (results.length) return results;
    }
    return [];
  };
  // If no page has all words, those with most of them: a word of few pages counts more than a frequent one.
  Search.performTermsSearch = (terms, excluded) => {
    const complete = performTermsSearch(terms, excluded);
    if (complete.length) return complete;
    const pages = new Map();
    for (const term of terms) {
      const results = withWord(term, excluded);
      for (const result of results) {
        const page = pages.get(result[0]) ?? [...result.slice(0, 4), 0, ...result.slice(5)];
        page[4] += 1 + result[4] / results.length;
        pages.set(result[0], page);
      }
    }
    return [...pages.values()];
  };
  Search._performSearch = (question, terms, excluded, ...others) => {
    const { docnames, filenames, objects, titles } = Search._index;
    const results = _performSearch(question, terms, excluded, ...others);
    // words of a header in another order or form, and those that are part of a longer question
    for (const [words, pages] of entries) {
      const common = [...terms].filter((term) => words.has(term)).length;
      if (!common || common < Math.min(words.size, terms.size)) continue;
      for (const page of pages) {
        const score = (90 * common) / Math.max(words.size, terms.size);
        const result = [docnames[page], titles[page], "", null, score, filenames[page], SearchResultKind.index];
        results.push([...result.slice(0, 4), Scorer.score(result), ...result.slice(5)]);
      }
    }
    // "confusion matrix" is the name of a function
    const name = (text) => text.toLowerCase().replace(/[\s_.-]/g, "");
    if (terms.size > 1)
      for (const members of Object.values(objects))
        for (const member of members)
          if (name(member[4]) === name(question))
            for (const result of Search.performObjectSearch(member[4].toLowerCase(), new Set()))
              results.push([...result.slice(0, 4), 50, ...result.slice(5)]);
    // the best result of each page and section; the last result is shown first
    results.sort(_orderResultsByScoreThenName);
    const last = new Map(results.map((result, place) => [String([result[0], ...result.slice(1, 4)]), place]));
    return results.filter((result, place) => last.get(String([result[0], ...result.slice(1, 4)])) === place);
  };
}
