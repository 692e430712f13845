"""What MediaWiki's words are called in other languages. All of them are always known, because a dump's own list may be
incomplete; the names that a dump declares come on top.

Names are lower-case, with spaces instead of underscores.
"""

FILE = frozenset(
    """
file image
datei bild
fichier
archivo imagen
immagine
файл изображение зображення слика датотека выява
ファイル 画像
文件 图像 圖像 檔案 档案 图片 圖片
파일 그림
ficheiro imagem arquivo
bestand afbeelding
plik grafika
fil billede bilde mynd
tiedosto kuva
soubor súbor obrázok
fájl kép
fișier fişier imagine
dosya resim
berkas gambar imej
tập tin hình
fitxer imatge
fitxategi irudi
dosiero
αρχείο εικόνα
картинка
attēls vaizdas pilt slika skedari
ملف صورة
پرونده تصویر
קובץ תמונה
चित्र ছবি চিত্র படிமம் దస్త్రం ಚಿತ್ರ ചിത്രം ਤਸਵੀਰ
ไฟล์ ภาพ
պատկեր სურათი სიმრავლე şəkil fayl
delwedd íomhá delweddenn lêer bestân
فائل
""".split()  # noqa: SIM905
) | {"tập tin", "hình ảnh"}
"""Namespace 6; and a link whose target has a colon and ends in a media suffix is one in any language."""

CATEGORY = frozenset(
    """
category
kategorie kategoria kategori kategorija kategória kategooria kategorio kategoreja kategorí kategorija
catégorie categoría categoria categorie catégoria
категория категорія категорија катэгорыя категори катэгорія
カテゴリ
分类 分類
분류
luokka
flokkur
κατηγορία
تصنيف
رده
קטגוריה
श्रेणी বিষয়শ্রেণী பகுப்பு వర్గం ವರ್ಗ വർഗ്ഗം ਸ਼੍ਰੇਣੀ
หมวดหมู่
կատեգորիա კატეგორია kateqoriya turkum
categoria rannpháirtíocht rummad catagóir categorîe kategorî
زمرہ
""".split()  # noqa: SIM905
) | {"thể loại"}
"""Namespace 14."""

MEDIA = frozenset(
    {"media", "medium", "média", "medio", "медиа", "メディア", "媒体", "媒體", "미디어", "وسائط", "مدیا", "מדיה"}
)
"""Namespace -2."""

TEMPLATE = frozenset(
    """
template vorlage modèle plantilla шаблон предефиниция sjabloon szablon mall malline skabelon mal šablona šablóna sablon
şablon templat predefinição format テンプレート 模板 樣板 틀 قالب الگو תבנית מבנה
""".split()  # noqa: SIM905
) | {"bản mẫu"}
"""Namespace 10, as it may stand before a template's name."""

REDIRECT = (
    "redirect|weiterleitung|redirection|redirección|rinvia|перенаправление|перенапр|перенаправлення|転送|リダイレクト|"
    "重定向|넘겨주기|redirecionamento|doorverwijzing|patrz|przekieruj|tam|omdirigering|omdiriger|ohjaus|uudelleenohjaus|"
    "přesměruj|presmeruj|átirányítás|redirecteaza|yönlendirme|yönlendir|alih|đổi|ανακατευθυνση|ανακατεύθυνση|виж|"
    "преусмери|تحويل|تغییر_مسیر|تغییرمسیر|הפניה|अनुप्रेषित|পুনর্নির্দেশ|เปลี่ยนทาง|вылучыць|aldaketa|birzuzendu|pāradresācija|"
    "peradresavimas|suuna|preusmeri|ridrejto|alidirektu|redirijet|tilvísun|beralih|lencong"
)
"""Keywords of redirects, an alternation for a regular expression."""

_APPENDIX = {
    "en": """references|notes|footnotes|endnotes|citations|sources|bibliography|further reading|external links|see also
notes and references|references and notes|references and sources|sources and references|notes and citations|works cited
cited works|general references|explanatory notes|general and cited references|cited sources|general sources
references and further reading|further reading and external links|external link|external sources|reading|notes and sources
bibliography and references|footnotes and references|citations and references|informational notes|related pages
external links and references|other websites|literature cited|inline citations|gallery|image gallery|primary sources|secondary sources|references cited
references and external links|citations and notes|notes and footnotes|additional reading|specific references|links""",
    "de": """einzelnachweise|weblinks|literatur|siehe auch|quellen|anmerkungen|fußnoten|belege|nachweise|referenzen
anmerkungen und einzelnachweise|literatur und quellen|quellen und einzelnachweise|einzelnachweise und anmerkungen
literatur und weblinks|quellen und literatur|galerie|bildergalerie|weiterführende literatur|externe links
fußnoten und einzelnachweise|sonstiges und weblinks""",
    "fr": """notes et références|références|notes|voir aussi|bibliographie|liens externes|articles connexes|lien externe
annexes|sources|notes et sources|galerie|références et notes|ouvrages|note|référence|pour approfondir|à lire
lien interne|liens internes|bibliographie et sources|sources et bibliographie|sources et références|galerie d'images""",
    "es": """referencias|véase también|enlaces externos|bibliografía|notas|fuentes|notas y referencias|referencias y notas
lecturas adicionales|bibliografía adicional|galería|galería de imágenes|notas al pie|lectura adicional|referencia
enlace externo|bibliografía recomendada|fuentes y referencias|otras lecturas|citas|obras citadas""",
    "it": """note|bibliografia|voci correlate|collegamenti esterni|altri progetti|fonti|riferimenti|galleria d'immagini
galleria|annotazioni|esplicative|bibliografiche|riferimenti bibliografici|galleria fotografica|note e riferimenti
approfondimenti|fonti e riferimenti""",
    "ru": """примечания|литература|ссылки|см. также|источники|смотри также|комментарии|сноски|внешние ссылки
смотрите также|библиография|использованная литература|примечания и ссылки|ссылки и примечания|галерея|видео
источники и ссылки|рекомендуемая литература|литература и источники|см также""",
    "zh": """参考文献|參考文獻|参考资料|參考資料|外部链接|外部連結|外部連接|参见|參見|参看|參看|注释|註釋|注释与参考文献|脚注|腳註
相关条目|相關條目|延伸阅读|延伸閱讀|来源|來源|参考来源|參考來源|參考|参考|备注|備註|注解|註解|另见|另見|参考书目|參考書目|资料来源
資料來源|图集|圖集|画廊|畫廊|引用|外部鏈接|相关链接|注脚|註腳|外部链结|註釋與參考文獻|文献|文獻|书目|參考文献|參考與註釋""",
    "ja": """脚注|参考文献|関連項目|外部リンク|出典|注釈|参考資料|関連文献|脚註|註釈|注|参照|引用|ギャラリー|関連書籍|脚注・出典
出典・脚注|注釈・出典|参考|文献|脚注・参考文献|典拠|画像|リンク|注記|参考図書|参照文献|関連記事|関連サイト|備考・脚注""",
    "pt": """referências|ver também|ligações externas|bibliografia|notas|notas e referências|leitura adicional|fontes
leituras adicionais|veja também|galeria|referência|links externos|referências e notas|referências bibliográficas""",
    "nl": "bronnen|referenties|zie ook|externe links|externe link|literatuur|noten|voetnoten|bronnen, noten en/of referenties",
    "pl": "przypisy|bibliografia|linki zewnętrzne|zobacz też|uwagi|źródła|galeria|literatura",
    "sv": "referenser|källor|se även|externa länkar|litteratur|noter|fotnoter|vidare läsning|bilder|galleri",
    "uk": "примітки|література|посилання|див. також|джерела|виноски|галерея|коментарі",
    "ar": "مراجع|المراجع|وصلات خارجية|انظر أيضا|انظر أيضًا|مصادر|المصادر|روابط خارجية|ملاحظات|هوامش|الهوامش|معرض صور|اقرأ أيضا",
    "fa": "منابع|پانویس|پیوند به بیرون|جستارهای وابسته|پانویس‌ها|یادداشت‌ها|نگارخانه|برای مطالعهٔ بیشتر|یادداشت|کتابشناسی",
    "he": "הערות שוליים|קישורים חיצוניים|ראו גם|לקריאה נוספת|ביאורים|מקורות|גלריה|ראה גם",
    "ko": "각주|참고 문헌|참고문헌|같이 보기|외부 링크|바깥 고리|출처|주석|참고 자료|내용주|참조주|갤러리|관련 항목",
    "cs": "reference|externí odkazy|literatura|související články|poznámky|odkazy|prameny|galerie",
    "fi": "lähteet|aiheesta muualla|katso myös|kirjallisuutta|viitteet|kirjallisuus",
    "tr": "kaynakça|dış bağlantılar|ayrıca bakınız|notlar|kaynaklar|konuyla ilgili yayınlar",
    "hu": "jegyzetek|források|további információk|kapcsolódó szócikkek|lásd még|irodalom|további irodalom|galéria",
    "id": "referensi|lihat pula|pranala luar|catatan|catatan kaki|rujukan|daftar pustaka|bacaan lanjutan|lihat juga",
    "vi": "tham khảo|liên kết ngoài|xem thêm|chú thích|ghi chú|đọc thêm|nguồn|thư mục",
    "ca": "referències|bibliografia|enllaços externs|vegeu també|notes|notes i referències|galeria",
    "no": "referanser|eksterne lenker|se også|litteratur|noter|kilder|fotnoter|galleri",
    "da": "referencer|eksterne henvisninger|se også|litteratur|noter|kilder|fodnoter|henvisninger",
    "ro": "note|bibliografie|legături externe|vezi și|referințe|lectură suplimentară|galerie",
    "el": "παραπομπές|βιβλιογραφία|εξωτερικοί σύνδεσμοι|δείτε επίσης|σημειώσεις|πηγές|αναφορές",
    "bg": "източници|външни препратки|вижте също|бележки|литература|бележки и източници|галерия",
    "eu": "erreferentziak|kanpo estekak|ikus, gainera|oharrak|bibliografia",
    "hi": "सन्दर्भ|संदर्भ|इन्हें भी देखें|बाहरी कड़ियाँ|बाहरी कड़ियां|टिप्पणी",
    "th": "อ้างอิง|แหล่งข้อมูลอื่น|ดูเพิ่ม|เชิงอรรถ|หมายเหตุ|บรรณานุกรม",
    "hr": "izvori|vanjske poveznice|povezani članci|bilješke|vidi još|literatura",
    "sk": "referencie|externé odkazy|pozri aj|literatúra|iné projekty|zdroje",
    "lt": "nuorodos|šaltiniai|taip pat skaitykite|literatūra|išnašos|pastabos",
    "et": "viited|välislingid|vaata ka|kirjandus|märkused",
    "gl": "notas|véxase tamén|ligazóns externas|outros artigos|bibliografía|outras ligazóns|referencias",
    "sl": "sklici|zunanje povezave|glej tudi|viri|opombe",
    "sr": "референце|литература|спољашње везе|види још|напомене|извори|reference|literatura|spoljašnje veze|vidi još",
}

APPENDIX = frozenset(
    title.strip() for titles in _APPENDIX.values() for line in titles.split("\n") for title in line.split("|")
)
"""Titles of sections that hold references, links and the like; they are dropped with all their subsections."""

CHAPTERS = frozenset(
    """
literatur literatura literatuur litteratur литература література літаратура литературе literatūra literatúra
kirjallisuus irodalom kirjandus
""".split()  # noqa: SIM905
)
"""Those that are a chapter on literature where they stand below another heading (Kultur → Literatur)."""

LITERATURE = {
    language: frozenset({"literatura"}) for language in ("es", "pt", "ca", "gl", "eu", "ro", "ast", "an", "oc")
}
"""Those that only other languages use for lists of books, by language of the wiki."""


def is_appendix(title: str, level: int, language: str = "") -> bool:
    """Whether a heading, in lower case, opens a section without prose."""
    return title in APPENDIX and not (level > 2 and title in CHAPTERS) and title not in LITERATURE.get(language, ())


_DISAMBIGUATION = {
    "en": """disambig|disamb|disambiguation|hndis|geodis|disambiguation page|disambiguation cleanup|disambig cleanup
human name disambiguation|airport disambiguation|school disambiguation|hospital disambiguation|place name disambiguation
mathematical disambiguation|letter-number combination disambiguation|number disambiguation|road disambiguation|roaddis
station disambiguation|call sign disambiguation|callsigndis|species latin name disambiguation|genus disambiguation
species latin name abbreviation disambiguation|biology disambiguation|church disambiguation|mountainindex|numberdis
military unit disambiguation|music disambiguation|phonetics disambiguation|political party disambiguation|mathdab
taxonomic authority disambiguation|taxonomy disambiguation|county disambiguation|township disambiguation|mil-unit-dis
synagogue disambiguation|portal disambiguation|split dab|schooldis|hndisambig|hosp disambig|disambig-cleanup|tndis
transport disambiguation|language disambiguation|chinese title disambiguation|latin name disambiguation|disambiguate
geodis-cleanup|hndis-cleanup|given name disambiguation|letter disambiguation|molform disambig|wpdab""",
    "de": "begriffsklärung|begriffsklärungsseite",
    "fr": "homonymie|paronymie|patronymie|toponymie|homonymes|homonymie de clubs sportifs|homonymie d'établissements scolaires"
    "|homonymie de personnes|homonymie patronymie|homonymie de titre|homonymie de toponyme|patronyme|prénom|arrêts homonymes",
    "es": "desambiguación|desambiguacion|desambig|desambiguación-p",
    "it": "disambigua",
    "ru": "неоднозначность|неоднозначность тёзки|другие значения термина|многозначность",
    "zh": "消歧义|消歧義|消歧义页|消歧義頁|人名消歧义|人名消歧義|地名消歧义|地名消歧義|disambiguation",
    "id": "disambig|disambiguasi|disambiguasi-id",
    "ja": "aimai|曖昧さ回避|人名の曖昧さ回避|地名の曖昧さ回避|山の曖昧さ回避|競走馬の曖昧さ回避|学校名の曖昧さ回避",
    "pt": "desambiguação|desambig-n|disambig-pt",
    "nl": "doorverwijspagina|dpintro",
    "pl": "ujednoznacznienie",
    "sv": "förgrening|grensida|efternamn-grensida",
    "uk": "неоднозначність|багатозначність",
    "ar": "توضيح",
    "fa": "ابهام‌زدایی|ابهام زدایی",
    "he": "פירושונים|דף פירושונים",
    "ko": "동음이의|동명이인",
    "cs": "rozcestník",
    "fi": "täsmennyssivu",
    "tr": "anlam ayrımı",
    "hu": "egyért|egyértelműsítő lap",
    "vi": "định hướng",
    "ca": "desambiguació",
    "da": "flertydig",
    "no": "pekerside",
    "ro": "dezambiguizare",
    "el": "αποσαφήνιση",
    "bg": "пояснение",
    "sr": "вишезначна одредница|višeznačna odrednica",
}

DISAMBIGUATION = frozenset(
    name.strip() for names in _DISAMBIGUATION.values() for line in names.split("\n") for name in line.split("|")
)
"""Templates that mark a page as a list of what its title may mean."""

SWITCHES = frozenset(
    """
NOTOC FORCETOC TOC NOEDITSECTION NEWSECTIONLINK NONEWSECTIONLINK NOGALLERY HIDDENCAT EXPECTUNUSEDCATEGORY NOCONTENTCONVERT
NOCC NOTITLECONVERT NOTC INDEX NOINDEX STATICREDIRECT DISAMBIG NOGLOBAL ARCHIVEDTALK NOTALK EXPECTEDUNCONNECTEDPAGE
EXPECTUNUSEDTEMPLATE START END
KEIN_INHALTSVERZEICHNIS KEININHALTSVERZEICHNIS INHALTSVERZEICHNIS_ERZWINGEN INHALTSVERZEICHNIS KEINE_GALERIE KEINEGALERIE
ABSCHNITTE_NICHT_BEARBEITEN VERSTECKTE_KATEGORIE WARTUNGSKATEGORIE NEUER_ABSCHNITTSLINK KEIN_NEUER_ABSCHNITTSLINK
INDEXIEREN NICHT_INDEXIEREN
AUCUNSOMMAIRE AUCUNETDM FORCERSOMMAIRE FORCERTDM SOMMAIRE TDM AUCUNEGALERIE CATCACHEE AUCUNINDEX
NOTDC SINTDC FORZARTDC TDC SINEDITARSECCION SINGALERIA CATEGORIAOCULTA NOINDEXAR INDEXAR
NOINDICE FORZAINDICE INDICE NOEDITA NONUOVASEZIONE NOGALLERIA CATNASCOSTA NOINDICIZZA INDICIZZA
SEMTDC FORCARTDC SEMGALERIA NAOEDITARSECAO GEENINHOUD INHOUD INHOUD_DWINGEN GEEN_INHOUD BEZSPISU SPIS WYMUSZAJSPIS
INGENINNEHALLSFORTECKNING
""".split()  # noqa: SIM905
)
"""Names in Latin letters between __ and __ that switch something on a page (MediaWiki's messages, nine languages)."""

DISAMBIGUATION_SHORT = {
    "en": ("dab",),
    "nl": ("dp",),
    "sv": ("gren",),
    "no": ("peker",),
    "de": ("bkl",),
    "hu": ("egyért",),
}
"""Those whose name means something else in another language, by language of the wiki."""

DISAMBIGUATION_TITLE = (
    "(disambiguation)",
    "(Begriffsklärung)",
    "(homonymie)",
    "(desambiguación)",
    "(disambigua)",
    "(значения)",
    "(消歧义)",
    "(消歧義)",
    "(曖昧さ回避)",
    "(desambiguação)",
    "(doorverwijspagina)",
    "(ujednoznacznienie)",
    "(значення)",
    "(동음이의)",
    "(توضيح)",
    "(olika betydelser)",
)
"""How the title of such a page ends."""

LANGUAGES = frozenset(
    """
aa ab ace ady af ak als alt am ami an ang anp ar arc ary arz as ast atj av avk awa ay az azb ba ban bar bat-smg bbc bcl
bdr be be-tarask be-x-old bew bg bh bi bjn blk bm bn bo bpy br bs btm bug bxr ca cbk-zam cdo ce ceb ch cho chr chy ckb co
cr crh cs csb cu cv cy da dag de dga din diq dsb dtp dty dv dz ee el eml en eo es et eu ext fa fat ff fi fiu-vro fj fo fon
fr frp frr fur fy ga gag gan gcr gd gl glk gn gom gor got gpe gsw gu guc gur guw gv ha hak haw he hi hif ho hr hsb ht hu hy
hyw hz ia iba id ie ig igl ii ik ilo inh io is it iu ja jam jbo jv ka kaa kab kbd kbp kcg kg kge ki kj kk kl km kn knc ko
koi kr krc ks ksh ku kus kv kw ky la lad lb lbe lez lfn lg li lij lld lmo ln lo lrc lt ltg lv lzh mad mai map-bms mdf mg mh
mhr mi min mk ml mn mni mnw mo mr mrj ms mt mus mwl my myv mzn na nah nan nap nds nds-nl ne new ng nia nl nn no nov nqo nr
nrm nso nup nv ny oc olo om or os pa pag pam pap pcd pcm pdc pfl pi pih pl pms pnb pnt ps pt pwn qu rm rmy rn ro roa-rup
roa-tara rsk ru rue rup rw sa sah sat sc scn sco sd se sg sgs sh shi shn shy si simple sk skr sl sm smn sn so sq sr srn ss
st stq su sv sw szl szy ta tay tcy tdd te tet tg th ti tig tk tl tly tn to tpi tr trv ts tt tum tw ty tyv udm ug uk ur uz
ve vec vep vi vls vo vro wa war wo wuu xal xh xmf yi yo yue za zea zgh zh zh-classical zh-cn zh-min-nan zh-tw zh-yue zu
""".split()  # noqa: SIM905
)
"""Prefixes of links to the same article in another Wikipedia."""

INTERWIKI = frozenset(
    """
w wikipedia wikt wiktionary b wikibooks q wikiquote s wikisource n wikinews v wikiversity voy wikivoyage c commons d
wikidata species wikispecies m meta mw mediawikiwiki phab
""".split()  # noqa: SIM905
)
"""Prefixes of links to other projects."""
