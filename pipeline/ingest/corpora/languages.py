"""The language of each corpus: as `--languages` says, else as its files were chosen.

The manifest records it, for a mixture of languages (`batch.mixture_over`) and the held-out loss of
each. It changes no row and no fingerprint.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pipeline.base.errors import ConfigError
from pipeline.config.settings import nearest
from pipeline.ingest.documents.records import Source
from pipeline.ingest.wikitext.names import LANGUAGES

BY_FOLDER = "by-folder"
MOST_NAMED = 8
"""Languages that a description names."""
_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_FOLDER = re.compile(r"([a-z]{2,3})(?:[_-]([A-Z][a-z]{3}))?(?=[_-]|$)")
"""The code, and perhaps the script, that the name of a folder begins with."""
_ISO_639_2 = """
ae lu nd nr oj aar abk ach ada afa afh afr ain aka akk alb ale alg amh apa ara arg arm arn arp
art arw asm ath aus ava ave aym aze bad bai bak bal bam baq bas bat bej bel bem ben ber bho bih
bik bin bis bla bnt bod bos bra bre btk bua bul bur byn cad cai car cat cau cel ces cha chb che
chg chi chk chm chn chp chu chv cmc cnr cop cor cos cpe cpf cpp cre crp cus cym cze dak dan dar
day del den deu dgr div doi dra dua dum dut dyu dzo efi egy eka ell elx eng enm est eus ewe ewo
fan fao fas fij fil fin fiu fon fra fre frm fro frs fry ful gaa gay gba gem geo ger gez gil gla
gle glg glv gmh goh gon grb grc gre grn guj gwi hai hat hau heb her hil him hin hit hmn hmo hrv
hun hup hye iba ibo ice ido iii ijo iku ile ina inc ind ine ipk ira iro isl ita jav jpn jpr jrb
kac kal kam kan kar kas kat kau kaw kaz kha khi khm kho kik kin kir kmb kok kom kon kor kos kpe
krl kro kru kua kum kur kut lah lam lao lat lav lim lin lit lol loz ltz lua lub lug lui lun luo
lus mac mag mah mak mal man mao map mar mas may mdr men mga mic mis mkd mkh mlg mlt mnc mno moh
mon mos mri msa mul mun mwr mya myn nai nau nav nbl nde ndo nep nic niu nld nno nob nog non nor
nub nwc nya nym nyn nyo nzi oci oji ori orm osa oss ota oto paa pal pan pau peo per phi phn pli
pol pon por pra pro pus que raj rap rar roa roh rom ron rum run rus sad sag sai sal sam san sas
sel sem sga sgn sid sin sio sit sla slk slo slv sma sme smi smj smo sms sna snd snk sog som son
sot spa sqi srd srp srr ssa ssw suk sun sus sux swa swe syc syr tah tai tam tat tel tem ter tgk
tgl tha tib tig tir tiv tkl tlh tli tmh tog ton tsi tsn tso tuk tup tur tut tvl twi uga uig ukr
umb und urd uzb vai ven vie vol vot wak wal was wel wen wln wol xho yao yap yid yor ypk zap zbl
zen zgh zha zho znd zul zun zxx zza
"""
"""Those that Wikimedia does not have: loc.gov/standards/iso639-2."""
_CODES = LANGUAGES.union(_ISO_639_2.split())
"""Codes that a name may begin with. ISO 639-3 would not tell languages from words: it has `old`,
`raw`, `org` and 45 % of all strings of three letters. Its codes need a script, as in aai_Latn."""


def corpus_languages(given: Sequence[str], sources: Iterable[Source]) -> dict[str, str]:
    """The language of each corpus for which it is known.

    given: CODE or `by-folder`, for all corpora, and CORPUS=CODE, which prevails. Raises ConfigError
    for what is not a code, and for a corpus that is not in the input.
    """
    chosen: dict[str, set[str]] = {}
    for source in sources:
        chosen.setdefault(source.corpus, set()).add(_chosen_language(source))
    # Files in several languages: the corpus has none, unless it is named.
    found = {corpus: codes.pop() for corpus, codes in chosen.items() if len(codes) == 1}
    named = dict(item.split("=", 1) for item in given if "=" in item)
    for corpus, code in named.items():
        if corpus not in chosen:
            raise ConfigError(
                f"--languages {corpus}={code}: the input has no corpus {corpus}; did you mean "
                f"{nearest(corpus, chosen)}?"
            )
    general = [item for item in given if "=" not in item]
    if len(general) > 1:
        raise ConfigError(
            f"--languages {' '.join(general)}: only one may be for all corpora; write CORPUS=CODE"
        )
    for code in general:
        found = {
            corpus: named.get(corpus) or (_in_name(corpus) if code == BY_FOLDER else code)
            for corpus in chosen
        }
    for code in (*general, *named.values()):
        if code != BY_FOLDER and not _CODE.fullmatch(code):
            raise ConfigError(
                f"--languages: {code!r} is not a language; give a code such as en, deu or zh-Hant, "
                f"CORPUS=CODE, or {BY_FOLDER}"
            )
    return {corpus: code for corpus, code in (found | named).items() if code}


def describe_languages(languages: Mapping[str, str]) -> str:
    """The number of corpora of each language, in words, the most first."""
    counted = Counter(languages.values()).most_common()
    named = [f"{code} {count:,}" for code, count in counted[:MOST_NAMED]]
    if len(counted) > MOST_NAMED:
        named.append(f"and {len(counted) - MOST_NAMED:,} more")
    return f"languages: {len(languages):,} corpora in {len(counted):,}: {', '.join(named)}"


def _in_name(corpus: str) -> str:
    """The language that a corpus is named for: en of en-web, zho-Hans of zho_Hans."""
    found = _FOLDER.match(corpus)
    if not found or not (found[1] in _CODES or found[2]):
        raise ConfigError(
            f"--languages {BY_FOLDER}: {corpus} does not begin with a code of ISO 639-1 or "
            "639-2, as en, en-web and zho_Hans do; rename it (other codes need their script, as in "
            f"arb_Arab), or add {corpus}=CODE"
        )
    return "-".join(filter(None, found.groups()))


def _chosen_language(source: Source) -> str:
    """The language of a crawl's pages that are kept, or of a dump's wiki; empty if unknown."""
    if source.published and source.format == "mediawiki":
        code = source.published.path.partition("wiki")[0].replace("_", "-")
        return code if code in LANGUAGES and _CODE.fullmatch(code) else ""  # not of commonswiki
    return source.page_language
