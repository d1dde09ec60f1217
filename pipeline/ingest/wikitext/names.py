"""Names that wikis give to languages, namespaces and switches, as data.

* `LANGUAGES`: Wikimedia's `langlist` (operations/mediawiki-config, commit 00d5da16), the codes that
  are prefixes of links between languages, and older codes that still are (`nb`, `zh-cn`, ...).
* The rest: `$namespaceNames`, `$namespaceAliases` and `$magicWords` of MediaWiki
  (languages/messages), for the larger languages; recalled, not copied from a version.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LANGUAGES = _words(
    """
    aa ab ace ady af ak als alt am ami an ang anp ar arc ary arz as ast atj av avk awa ay az azb ba
    ban bar bat-smg bcl be be-tarask be-x-old bg bh bi bjn blk bm bn bo bpy br bs btm bug bxr ca
    cbk-zam cdo ce ceb ch cho chr chy ckb co cr crh cs csb cu cv cy da dag de din diq dsb dty dv dz
    ee el eml en eo es et eu ext fa fat ff fi fiu-vro fj fo fr frp frr fur fy ga gag gan gcr gd gl
    glk gn gom gor got gpe gsw gu guc gur guw gv ha hak haw he hi hif ho hr hsb ht hu hy hyw hz ia
    id ie ig ii ik ilo inh io is it iu ja jam jbo jv ka kaa kab kbd kbp kcg kg ki kj kk kl km kn ko
    koi kr krc ks ksh ku kv kw ky la lad lb lbe lez lfn lg li lij lld lmo ln lo lrc lt ltg lv lzh
    mad mai map-bms mdf mg mh mhr mi min mk ml mn mni mnw mo mr mrj ms mt mus mwl my myv mzn na nah
    nan nap nds nds-nl ne new ng nia nl nn no nov nqo nrm nso nv ny oc olo om or os pa pag pam pap
    pcd pcm pdc pfl pi pih pl pms pnb pnt ps pt pwn qu rm rmy rn ro roa-rup roa-tara ru rue rup rw
    sa sah sat sc scn sco sd se sg sgs sh shi shn shy si simple sk skr sl sm smn sn so sq sr srn ss
    st stq su sv sw szl szy ta tay tcy te tet tg th ti tk tl tly tn to tpi tr trv ts tt tum tw ty
    tyv udm ug uk ur uz ve vec vep vi vls vo vro wa war wo wuu xal xh xmf yi yo yue za zea zh
    zh-classical zh-min-nan zh-yue zu
    cmn cz dk epo jp minnan nb zh-cfr zh-cn zh-tw
    """
)
"""Prefixes of links to the same page in another language."""

NAMESPACES: dict[str, tuple[str, str]] = {
    "en": ("file, image", "category"),
    "ar": ("ملف, صورة", "تصنيف"),
    "arz": ("ملف, صورة", "تصنيف"),
    "az": ("fayl, şəkil", "kateqoriya"),
    "be": ("файл, выява", "катэгорыя"),
    "be-tarask": ("файл, выява", "катэгорыя"),
    "bg": ("файл, картинка", "категория"),
    "bn": ("চিত্র", "বিষয়শ্রেণী"),
    "ca": ("fitxer, imatge", "categoria"),
    "ceb": ("payl", "kategoriya"),
    "crh": ("fayl, resim, файл, ресим", "kategoriya, категория"),
    "cs": ("soubor", "kategorie"),
    "da": ("fil, billede", "kategori"),
    "de": ("datei, bild", "kategorie"),
    "el": ("αρχείο, εικόνα", "κατηγορία"),
    "eo": ("dosiero", "kategorio"),
    "es": ("archivo, imagen", "categoría"),
    "et": ("pilt, fail", "kategooria"),
    "eu": ("fitxategi, irudi", "kategoria"),
    "fa": ("پرونده, تصویر", "رده"),
    "fi": ("tiedosto, kuva", "luokka"),
    "fr": ("fichier", "catégorie"),
    "gan": ("文件, 檔案, 图像, 圖像", "分类, 分類"),
    "gl": ("ficheiro, imaxe", "categoría"),
    "he": ("קובץ, תמונה", "קטגוריה"),
    "hi": ("चित्र", "श्रेणी"),
    "hr": ("datoteka, slika", "kategorija"),
    "hu": ("fájl, kép", "kategória"),
    "hy": ("պատկեր", "կատեգորիա"),
    "id": ("berkas, gambar", "kategori"),
    "it": ("immagine", "categoria"),
    "ja": ("ファイル, 画像", "カテゴリ"),
    "ka": ("ფაილი, სურათი", "კატეგორია"),
    "kk": ("файл, сурет, sýret, swret, سۋرەت", "санат, sanat, سانات"),
    "ko": ("파일, 그림", "분류"),
    "ku": ("wêne", "kategorî"),
    "la": ("fasciculus, imago", "categoria"),
    "lt": ("vaizdas", "kategorija"),
    "lv": ("attēls", "kategorija"),
    "mk": ("податотека, слика", "категорија"),
    "ms": ("fail, imej", "kategori"),
    "nb": ("fil, bilde", "kategori"),
    "nl": ("bestand, afbeelding", "categorie"),
    "nn": ("fil, bilde", "kategori"),
    "no": ("fil, bilde", "kategori"),
    "pl": ("plik, grafika", "kategoria"),
    "pt": ("ficheiro, imagem, arquivo", "categoria"),
    "ro": ("fișier, fişier, imagine", "categorie"),
    "ru": ("файл, изображение", "категория"),
    "sh": ("datoteka, slika, датотека, слика", "kategorija, категорија"),
    "sk": ("súbor, obrázok", "kategória"),
    "sl": ("slika, datoteka", "kategorija"),
    "sr": ("датотека, слика, datoteka, slika", "категорија, kategorija"),
    "sv": ("fil, bild", "kategori"),
    "tg": ("акс", "гурӯҳ"),
    "th": ("ไฟล์, ภาพ", "หมวดหมู่"),
    "tr": ("dosya, resim", "kategori"),
    "uk": ("файл, зображення, изображение", "категорія, категория"),
    "uz": ("fayl, tasvir, файл, тасвир", "turkum, kategoriya, категория"),
    "vi": ("tập tin, hình", "thể loại"),
    "war": ("paypay", "kaarangay"),
    "wuu": ("文件, 档案, 檔案", "分类, 分類"),
    "yue": ("文件, 檔案, 档案, 圖像, 图像", "分類, 分类"),
    "zh": ("文件, 檔案, 档案, 图像, 圖像, 图片, 圖片, 影像", "分类, 分類"),
}
"""Namespaces of files and of categories by language, lower-case, with their former names."""

REDIRECTS = _words(
    """
    redirect перенаправление перенапр перенаправлення пренасочване преусмери преусмјери
    пренасочување перанакіраванне айдау weiterleitung redirection redireccion redirección
    redirecionamento
    redireciona redirecciona rinvia rinvio doorverwijzing omdirigering omdiriger viderelaeding
    viderekobling ohjaus uudelleenohjaus patrz przekieruj tam přesměruj presmeruj
    preusmjeri preusmeri
    átirányítás yönlendirme alih đổi birzuzendu alidirektu ανακατευθυνση redirectioneaza
    redirecteaza redirecţionare suuna saada peradresavimas 重定向 重新導向 転送 リダイレクト
    넘겨주기 تحويل تغيير_مسار تغییرمسیر تغییر_مسیر הפניה เปลี่ยนทาง पुनर्प्रेषित पुनर्निर्देशित পুনর্নির্দেশ
    """
)
"""First words, after the number sign, of pages that are redirects; lower-case."""

SWITCHES = _words(
    """
    notoc forcetoc toc noeditsection newsectionlink nonewsectionlink nogallery hiddencat
    expectunusedcategory expectunusedtemplate nocontentconvert nocc notitleconvert notc
    index noindex staticredirect noglobal disambig archivedtalk notalk
    expectwithoutscans expect_without_scans nocachedtoc
    kein_inhaltsverzeichnis keininhaltsverzeichnis inhaltsverzeichnis_erzwingen inhaltsverzeichnis
    abschnitte_nicht_bearbeiten indexieren nicht_indexieren keine_galerie keinegalerie
    aucunsommaire aucuntdm forcersommaire forcertdm sommaire tdm sectionnoneditable aucunegalerie
    notdc sin_tdc forzartdc forzar_tdc tdc noeditarsección nogalería
    noindice forzaindice indice semtdc semsumario forcartdc forcarsumario forçartdc sumario sumário
    naoeditarsecao nãoeditarseção geeninhoud inhoud_dwingen forceerinhoud inhoud
    nietbewerkbaresectie bezspisu bez_spisu zespisem wymuśspis spis bezedycjisekcji bezobsahu
    vynuceníobsahu obsah
    ingeninnehållsförteckning alltidinnehållsförteckning innehållsförteckning
    без_огл обяз_огл огл без_галереи без_редактирования_раздела скрытая_категория индекс без_индекса
    ссылка_на_новый_раздел без_змісту обов_зміст зміст без_галереї
    目次非表示 目次強制 目次 節編集非表示 ギャラリー非表示
    无目录 無目錄 强显目录 強顯目錄 目录 目錄 无编辑段落 不转换 不轉換
    不转换标题 不轉換標題
    不转换内容 不轉換內容
    목차숨김 목차보이기 목차 문단편집숨기기 لافهرس لصق_فهرس فهرس
    ללא_תוכן_עניינים תוכן_עניינים חייב_תוכן_עניינים
    """
)
"""Words between two double underscores that a wiki takes for a switch, lower-case."""
